package admin

import (
	"context"

	"github.com/pawlq/pawl/internal/client/convert"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// BreakerState is the state of a breaker that is not closed. Newer brokers may add states.
type BreakerState string

const (
	BreakerOpen    BreakerState = "open"    // no task of the type can start
	BreakerProbing BreakerState = "probing" // one task at a time can start
)

// CloseBreaker closes the breaker of a type by hand, or with "" all breakers of the queue. It is not an error if none is open. There is no
// call to open a breaker: to stop a type, use PauseSubset.
func (a Queues) CloseBreaker(ctx context.Context, queue, typ string) (*Queue, error) {
	req := &pawlv1.CloseBreakerRequest{Queue: queue, Type: convert.Text(typ)}
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperatorServiceClient(a.rpc).CloseBreaker, req)
	return queueAnswer("close breaker of queue", queue, resp.GetQueue(), err)
}

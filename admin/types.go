package admin

import (
	"context"
	"fmt"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Types is the group of calls about task types and their recent activity.
type Types struct{ calls }

// Types returns the calls about task types and their recent activity.
func (a Client) Types() Types { return Types(a) }

// TypesByName is the order of a list of types by name.
const TypesByName TypeOrder = ""

// ListPage returns one page of task types.
func (a Types) ListPage(ctx context.Context, f TypeFilter, page pawltype.PageRequest) (pawltype.Page[*Type], error) {
	req := f.message()
	req.Limit, req.Cursor = convert.Int32(page.Limit), page.Cursor
	var err error
	if req.Order, err = convert.Number[pawlv1.TypeOrder]("order", f.Order, typeOrderWords, "one of most, failing"); err != nil {
		return pawltype.Page[*Type]{}, fmt.Errorf("list types: %w", err)
	}
	resp, err := operate(ctx, a.calls, true, pawlv1.NewStatsServiceClient(a.rpc).ListTypes, req)
	return pageOf(typeOf, resp, err, "list types")
}

// Stats returns statistics for the tasks of a type. A type that no node remembers has zeros and no queues.
func (a Types) Stats(ctx context.Context, typ string, q TypeQuery) (*TypeStats, error) {
	req := q.message()
	req.Type = typ
	resp, err := operate(ctx, a.calls, true, pawlv1.NewStatsServiceClient(a.rpc).GetTypeStats, req)
	return answer(typeStatsOf, resp, err, "stats of type %q", typ)
}

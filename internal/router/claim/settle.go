package claim

import (
	"context"
	"slices"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/task"
)

// Settle runs verbs on claims of one shard. If the shard does not exist, neither do its tasks.
func (c *Claims) Settle(ctx context.Context, shard uint32, calls []broker.Settle) ([]broker.Settled, broker.Stamp, error) {
	if !c.forward.Leads(shard) {
		switch exists, err := c.forward.HasShard(ctx, shard); {
		case err != nil:
			return nil, broker.Stamp{}, err
		case !exists:
			out := make([]broker.Settled, len(calls))
			for i := range calls {
				out[i].Err = task.NotFound("task", calls[i].Hold.ID.String())
			}
			return out, broker.Stamp{}, nil
		}
		calls = slices.Clone(calls) // Pack may change them, and they are the caller's
	}
	out, err := forward.Call(ctx, c.forward, SettleClaims, shard, Settling{Shard: shard, Calls: calls})
	return out.Out, out.At, err
}

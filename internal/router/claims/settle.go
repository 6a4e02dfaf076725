package claims

import (
	"context"
	"slices"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/task"
)

type settleArgs struct {
	Shard uint32
	Calls []broker.Settle
}

// Pack keeps an empty checkpoint from looking like none on the wire.
func (a *settleArgs) Pack() {
	for i := range a.Calls {
		if c := &a.Calls[i].Extend; c.Checkpoint != nil && *c.Checkpoint == nil {
			c.Checkpoint = &[]byte{}
		}
	}
}

func (a *settleArgs) Unpack() {}

type settleAnswer struct {
	Out    []broker.Settled
	At     broker.Stamp
	Faults []*forward.Fault
}

func (a *settleAnswer) item(i int) *error { return &a.Out[i].Err }
func (a *settleAnswer) Pack()             { a.Faults = forward.FaultsOf(len(a.Out), a.item) }
func (a *settleAnswer) Unpack()           { forward.ErrorsOf(a.Faults, len(a.Out), a.item) }

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
	out, err := c.settle.Call(ctx, shard, settleArgs{shard, calls})
	return out.Out, out.At, err
}

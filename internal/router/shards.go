package router

import (
	"context"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// The calls on claims and tasks, as package broker describes them. Each has its arguments, its answer and its method.

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
	Faults []*fault
}

func (a *settleAnswer) item(i int) *error { return &a.Out[i].Err }
func (a *settleAnswer) Pack()             { a.Faults = faultsOf(len(a.Out), a.item) }
func (a *settleAnswer) Unpack()           { errorsOf(a.Faults, len(a.Out), a.item) }

var settle = serve(&method[settleArgs, settleAnswer]{Rule: verb.Rule{Name: "settle"}, run: func(ctx context.Context, r *Router, a settleArgs) (out settleAnswer, err error) {
	out.Out, out.At, err = r.cfg.Broker.Settle(ctx, a.Shard, a.Calls)
	return out, err
}})

// Settle runs verbs on claims of one shard. If the shard does not exist, neither do its tasks.
func (r *Router) Settle(ctx context.Context, shard uint32, calls []broker.Settle) ([]broker.Settled, broker.Stamp, error) {
	if !r.leads(shard) {
		switch exists, err := r.hasShard(ctx, shard); {
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
	out, err := call(ctx, r, settle, shard, settleArgs{shard, calls})
	return out.Out, out.At, err
}

// hasShard reports whether a data shard exists. One that this node's copy of the map does not know may be new.
func (r *Router) hasShard(ctx context.Context, shard uint32) (bool, error) {
	if shard == systemShard {
		return false, nil
	}
	if slices.Contains(r.cfg.Map.Shards(), shard) {
		return true, nil
	}
	return call(ctx, r, hasShard, systemShard, shard)
}

// check returns not_found for a task whose shard does not exist.
func (r *Router) check(ctx context.Context, id task.ID) error {
	return r.checkShard(ctx, id.Shard(), "task", id.String())
}

type showArgs struct {
	Namespace string
	ID        task.ID
	Wait      time.Duration
}

type showAnswer struct {
	View *broker.View
	At   broker.Stamp
}

var showTask = serve(&method[showArgs, showAnswer]{Rule: verb.Rule{Name: "task", Idempotent: true}, run: func(ctx context.Context, r *Router, a showArgs) (out showAnswer, err error) {
	out.View, out.At, err = r.cfg.Broker.Task(ctx, a.Namespace, a.ID, a.Wait)
	return out, err
},
	wait: func(a *showArgs) *time.Duration { return &a.Wait }})

// Task returns a task, waiting up to wait for its end, whichever nodes lead its shard meanwhile.
func (r *Router) Task(ctx context.Context, ns string, id task.ID, wait time.Duration) (*broker.View, broker.Stamp, error) {
	if err := r.check(ctx, id); err != nil {
		return nil, broker.Stamp{}, err
	}
	if wait <= 0 {
		out, err := call(ctx, r, showTask, id.Shard(), showArgs{ns, id, 0})
		return out.View, out.At, err
	}
	deadline := time.Now().Add(wait)
	waiting, cancel := r.untilDrain(ctx)
	defer cancel()
	for {
		out, err := call(waiting, r, showTask, id.Shard(), showArgs{ns, id, wait})
		if err != nil && waiting.Err() != nil && ctx.Err() == nil {
			return r.Task(ctx, ns, id, 0)
		}
		if err != nil || out.View.Exec.State.Ended() {
			return out.View, out.At, err
		}
		// A node that is about to stop ends its waits early.
		if wait = time.Until(deadline); wait <= earlyPause || ctx.Err() != nil || r.isDraining() {
			return out.View, out.At, nil
		}
		r.sleep(ctx, earlyPause)
		wait -= earlyPause
	}
}

// earlyPause is the pause after a wait that another node ended early.
const earlyPause = 100 * time.Millisecond

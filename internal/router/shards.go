package router

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
)

// The calls on data shards, as package broker describes them. Each has its arguments, its answer and its method; what has
// nothing to add to that is in operators.go.

type enqueueArgs struct {
	Shard     uint32
	Namespace string
	Specs     []task.Spec
}

type enqueueAnswer struct {
	Out    []broker.Enqueued
	At     broker.Stamp
	Faults []*fault
}

func (a *enqueueAnswer) item(i int) *error { return &a.Out[i].Err }
func (a *enqueueAnswer) pack()             { a.Faults = faultsOf(len(a.Out), a.item) }
func (a *enqueueAnswer) unpack()           { errorsOf(a.Faults, len(a.Out), a.item) }

var enqueue = &method[enqueueArgs, enqueueAnswer]{name: "enqueue", run: func(ctx context.Context, r *Router, a enqueueArgs) (out enqueueAnswer, err error) {
	out.Out, out.At, err = r.cfg.Broker.Enqueue(ctx, a.Shard, a.Namespace, a.Specs)
	return out, err
}}

// Enqueue makes tasks in one shard. Tasks of a queue that lies elsewhere by now go there.
func (r *Router) Enqueue(ctx context.Context, shard uint32, ns string, specs []task.Spec) ([]broker.Enqueued, broker.Stamp, error) {
	return r.enqueue(ctx, shard, ns, specs, maxMoves)
}

// maxMoves is how often the queues of one call may turn out to have moved.
const maxMoves = 3

func (r *Router) enqueue(ctx context.Context, shard uint32, ns string, specs []task.Spec, moves int) ([]broker.Enqueued, broker.Stamp, error) {
	out, err := call(ctx, r, enqueue, shard, enqueueArgs{shard, ns, specs})
	if err == nil {
		return out.Out, out.At, nil
	}
	var moved *broker.Moved
	switch {
	case !errors.As(err, &moved):
		return nil, out.At, err
	case moves == 0:
		return nil, out.At, task.Unavailable(searchRest, "%v, and moves again and again", moved)
	}
	r.learn(moved)
	return r.enqueueApart(ctx, ns, specs, moves-1)
}

// enqueueApart enqueues tasks of one batch where each lies by now.
func (r *Router) enqueueApart(ctx context.Context, ns string, specs []task.Spec, moves int) (out []broker.Enqueued, at broker.Stamp, err error) {
	var shards []uint32
	index := map[uint32][]int{}
	for i := range specs {
		shard, err := r.Directory().Place(ctx, ns, specs[i].Queue)
		if err != nil {
			return nil, at, err
		}
		if index[shard] == nil {
			shards = append(shards, shard)
		}
		index[shard] = append(index[shard], i)
	}
	out = make([]broker.Enqueued, len(specs))
	for _, shard := range shards {
		part := make([]task.Spec, len(index[shard]))
		for n, i := range index[shard] {
			part[n] = specs[i]
		}
		got, partAt, err := r.enqueue(ctx, shard, ns, part, moves)
		if err != nil && len(shards) == 1 {
			return nil, partAt, err
		}
		for n, i := range index[shard] {
			if err != nil {
				out[i].Err = err
			} else {
				out[i], at = got[n], partAt
			}
		}
	}
	return out, at, nil
}

type settleArgs struct {
	Shard uint32
	Calls []broker.Settle
}

// pack keeps an empty checkpoint from looking like none on the wire.
func (a *settleArgs) pack() {
	for i := range a.Calls {
		if c := &a.Calls[i].Extend; c.Checkpoint != nil && *c.Checkpoint == nil {
			c.Checkpoint = &[]byte{}
		}
	}
}

func (a *settleArgs) unpack() {}

type settleAnswer struct {
	Out    []broker.Settled
	At     broker.Stamp
	Faults []*fault
}

func (a *settleAnswer) item(i int) *error { return &a.Out[i].Err }
func (a *settleAnswer) pack()             { a.Faults = faultsOf(len(a.Out), a.item) }
func (a *settleAnswer) unpack()           { errorsOf(a.Faults, len(a.Out), a.item) }

var settle = &method[settleArgs, settleAnswer]{name: "settle", run: func(ctx context.Context, r *Router, a settleArgs) (out settleAnswer, err error) {
	out.Out, out.At, err = r.cfg.Broker.Settle(ctx, a.Shard, a.Calls)
	return out, err
}}

// Settle runs verbs on claims of one shard. A shard that nobody has is tasks that nobody has.
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
		calls = slices.Clone(calls) // pack may change them, and they are the caller's
	}
	out, err := call(ctx, r, settle, shard, settleArgs{shard, calls})
	return out.Out, out.At, err
}

// hasShard says whether there is a data shard. What this node's copy of the map does not know yet may be new.
func (r *Router) hasShard(ctx context.Context, shard uint32) (bool, error) {
	if shard == systemShard {
		return false, nil
	}
	if len(r.cfg.Map.Replicas(shard)) > 0 || slices.Contains(r.cfg.Map.Shards(), shard) {
		return true, nil
	}
	return call(ctx, r, hasShard, systemShard, shard)
}

// check refuses a task whose shard nobody has.
func (r *Router) check(ctx context.Context, id task.ID) error {
	if r.leads(id.Shard()) {
		return nil
	}
	exists, err := r.hasShard(ctx, id.Shard())
	if err == nil && !exists {
		err = task.NotFound("task", id.String())
	}
	return err
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

var showTask = &method[showArgs, showAnswer]{name: "task", again: true, run: func(ctx context.Context, r *Router, a showArgs) (out showAnswer, err error) {
	out.View, out.At, err = r.cfg.Broker.Task(ctx, a.Namespace, a.ID, a.Wait)
	return out, err
},
	wait: func(a showArgs) time.Duration { return a.Wait },
	left: func(a showArgs, d time.Duration) showArgs { a.Wait = d; return a }}

// Task reads a task, waiting up to wait for its end, whichever nodes lead its shard meanwhile.
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
		if wait = time.Until(deadline); wait <= earlyRest || ctx.Err() != nil || r.isDraining() {
			return out.View, out.At, nil
		}
		r.sleep(ctx, earlyRest)
		wait -= earlyRest
	}
}

// earlyRest is the pause after a wait that another node ended early.
const earlyRest = 100 * time.Millisecond

package router

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

type onceArgs struct {
	Shard uint32
	Call  broker.OnceCall
}

type onceAnswer struct {
	Out broker.OnceAnswer
	At  broker.Stamp
}

func runOnce(ctx context.Context, r *Router, a onceArgs) (out onceAnswer, err error) {
	out.Out, out.At, err = r.cfg.Broker.Once(ctx, a.Shard, a.Call)
	return out, err
}

var (
	once = serve(&method[onceArgs, onceAnswer]{Rule: verb.Rule{Name: "once", Idempotent: true}, run: runOnce})
	// abandonOnce is not repeated if its outcome is unknown: the first call might arrive late, and abandon what the same claim has begun
	// again.
	abandonOnce = serve(&method[onceArgs, onceAnswer]{Rule: verb.Rule{Name: "abandon-once"}, run: runOnce})
)

// Once runs a verb on a once key. The task's shard is asked first: usually it has the key too, and otherwise it returns the queue and
// confirms the claim.
func (r *Router) Once(ctx context.Context, c broker.OnceCall) (broker.OnceAnswer, broker.Stamp, error) {
	if level := r.cfg.Map.Level(); level < cluster.PoliciesLevel {
		return broker.OnceAnswer{}, broker.Stamp{}, &task.Error{Code: task.CodeWrongState,
			Message: c.Verb.String() + ": this needs feature level 3 on all nodes: see `pawl cluster raise-level`"}
	}
	if err := r.check(ctx, c.Hold.ID); err != nil {
		return broker.OnceAnswer{}, broker.Stamp{}, err
	}
	out, err := r.onceIn(ctx, c.Hold.ID.Shard(), c)
	if err != nil || out.Out.State != broker.OnceAway {
		return out.Out, out.At, err
	}
	out, err = r.onceBySlot(ctx, c, out.Out)
	return out.Out, out.At, err
}

func (r *Router) onceIn(ctx context.Context, shard uint32, c broker.OnceCall) (onceAnswer, error) {
	m := once
	if c.Verb == broker.OnceAbandon {
		m = abandonOnce
	}
	return call(ctx, r, m, shard, onceArgs{shard, c})
}

// onceBySlot looks for a key of a queue that is or was spread over shards, along the route of the key's slot: first in the shards that may
// know it from before the slot moved. away is the claim as confirmed by the task's shard.
func (r *Router) onceBySlot(ctx context.Context, c broker.OnceCall, away broker.OnceAnswer) (out onceAnswer, err error) {
	slot := task.OnceSlot(c.Key)
	since, pause := time.Now(), pauseMin
	for {
		q, err := r.Directory().Place(ctx, c.Hold.Namespace, away.Queue)
		if err != nil {
			return out, err
		}
		c.Routed = q.Config.Version
		for _, shard := range q.Route(slot, true) {
			if c.By, c.Queue = nil, ""; shard != c.Hold.ID.Shard() {
				c.By, c.Queue = &away.Holder, away.Queue
			}
			if out, err = r.onceThere(ctx, shard, c); !errors.Is(err, broker.ErrSlotMoved) {
				return out, err
			}
		}
		if end, ok := ctx.Deadline(); time.Since(since) >= routeTime || ok && time.Until(end) < pause+replyTime || r.ctx.Err() != nil {
			return out, broker.ErrSlotMoved
		}
		if err := r.refresh(ctx, c.Hold.Namespace, away.Queue); err != nil {
			return out, err
		}
		r.sleep(ctx, pause/2+rand.N(pause/2)) // the slot may be moving
		pause = min(2*pause, pauseMax)
	}
}

// onceThere asks one shard. If a claim of another shard holds the key, that shard is asked whether the claim is still valid.
func (r *Router) onceThere(ctx context.Context, shard uint32, c broker.OnceCall) (onceAnswer, error) {
	out, err := r.onceIn(ctx, shard, c)
	if err == nil && out.Out.Far {
		holder := out.Out.Holder
		holds, bad := r.stillHolds(ctx, c.Hold.Namespace, holder)
		if bad != nil {
			return out, bad
		}
		if !holds {
			c.Ended = &holder
			out, err = r.onceIn(ctx, shard, c)
		}
	}
	if err != nil && r.learnMoved(err) {
		err = broker.ErrSlotMoved
	}
	return out, err
}

func (r *Router) stillHolds(ctx context.Context, ns string, h broker.OnceHolder) (bool, error) {
	if err := r.check(ctx, h.ID); err != nil {
		if errors.Is(err, task.ErrNotFound) {
			return false, nil
		}
		return false, err
	}
	return broker.OnceHolds.Call(ctx, r, broker.OnceHold{Namespace: ns, Holder: h})
}

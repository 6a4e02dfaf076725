package router

import (
	"context"
	"errors"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/enqueue"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/task"
)

// Keys finds once keys, wherever their shards are led.
type Keys struct {
	forward *forward.Forwarder
	queues  *enqueue.Directory
}

// Once runs a verb on a once key. The task's shard is asked first: usually it has the key too, and otherwise it returns the queue and
// confirms the claim.
func (k *Keys) Once(ctx context.Context, c broker.OnceCall) (broker.OnceAnswer, broker.Stamp, error) {
	if err := k.forward.CheckTask(ctx, c.Hold.ID); err != nil {
		return broker.OnceAnswer{}, broker.Stamp{}, err
	}
	out, err := k.onceIn(ctx, c.Hold.ID.Shard(), c)
	if err != nil || out.Out.State != broker.OnceAway {
		return out.Out, out.At, err
	}
	out, err = k.onceBySlot(ctx, c, out.Out)
	return out.Out, out.At, err
}

func (k *Keys) onceIn(ctx context.Context, shard uint32, c broker.OnceCall) (OnceAnswered, error) {
	v := UseOnce
	if c.Verb == broker.OnceAbandon {
		v = AbandonOnce
	}
	return forward.Call(ctx, k.forward, v, shard, OnceIn{Shard: shard, Call: c})
}

// onceBySlot looks for a key of a queue that is or was spread over shards, along the route of the key's slot: first in the shards that may
// know it from before the slot moved. away is the claim as confirmed by the task's shard.
func (k *Keys) onceBySlot(ctx context.Context, c broker.OnceCall, away broker.OnceAnswer) (out OnceAnswered, err error) {
	slot := task.OnceSlot(c.Key)
	for retries := k.forward.NewRetries(); ; {
		q, err := k.queues.Place(ctx, c.Hold.Namespace, away.Queue)
		if err != nil {
			return out, err
		}
		c.Routed = q.Config.Version
		route := q.Route(slot, true)
		for i, shard := range route {
			c.Left = i < len(route)-1
			if c.By, c.Queue = nil, away.Queue; shard != c.Hold.ID.Shard() {
				c.By = &away.Holder
			}
			if out, err = k.onceThere(ctx, shard, c); !errors.Is(err, broker.ErrSlotMoved) {
				return out, err
			}
		}
		if !retries.More(ctx) {
			return out, broker.ErrSlotMoved
		}
		if err := k.queues.Refresh(ctx, c.Hold.Namespace, away.Queue); err != nil {
			return out, err
		}
		retries.Pause(ctx) // the slot may be moving
	}
}

// onceThere asks one shard. If a claim of another shard holds the key, that shard is asked whether the claim is still valid.
func (k *Keys) onceThere(ctx context.Context, shard uint32, c broker.OnceCall) (OnceAnswered, error) {
	out, err := k.onceIn(ctx, shard, c)
	if err == nil && out.Out.Far {
		holder := out.Out.Holder
		holds, bad := k.stillHolds(ctx, c.Hold.Namespace, holder)
		if bad != nil {
			return out, bad
		}
		if !holds {
			c.Ended = &holder
			out, err = k.onceIn(ctx, shard, c)
		}
	}
	if err != nil && k.forward.LearnMoved(err) {
		err = broker.ErrSlotMoved
	}
	return out, err
}

func (k *Keys) stillHolds(ctx context.Context, ns string, h broker.OnceHolder) (bool, error) {
	if err := k.forward.CheckTask(ctx, h.ID); err != nil {
		if errors.Is(err, task.ErrNotFound) {
			return false, nil
		}
		return false, err
	}
	return broker.OnceHolds.Call(ctx, k.forward, broker.OnceHold{Namespace: ns, Holder: h})
}

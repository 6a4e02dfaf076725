package enqueue

import (
	"context"
	"errors"
	"slices"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// Enqueuer enqueues tasks in the shards of their queues, wherever these are led.
type Enqueuer struct {
	forward *forward.Forwarder
	queues  *Directory
	groups  *Groups
}

// New returns an Enqueuer for single tasks, and the Groups whose members it enqueues.
func New(f *forward.Forwarder, q *Directory) (*Enqueuer, *Groups) {
	e := &Enqueuer{forward: f, queues: q}
	e.groups = &Groups{f, e}
	return e, e.groups
}

// in enqueues tasks in a shard, wherever it is led.
func (e *Enqueuer) in(ctx context.Context, shard uint32, ns string, specs []task.Spec) (TasksEnqueued, error) {
	return forward.Call(ctx, e.forward, EnqueueTasks, shard, Enqueueing{OnShard: broker.OnShard{Shard: shard, Namespace: ns}, Specs: specs})
}

// Enqueue enqueues tasks in the shard where they belong according to the caller's copy of the map. Tasks that belong elsewhere by now go
// there.
func (e *Enqueuer) Enqueue(ctx context.Context, shard uint32, ns string, specs []task.Spec) ([]broker.Enqueued, broker.Stamp, error) {
	if slices.ContainsFunc(specs, IsNewMember) {
		return e.groups.enqueueMembers(ctx, shard, ns, specs)
	}
	if !e.routeWhole(ns, specs) {
		return e.enqueueBySlot(ctx, shard, ns, specs, TasksEnqueued{})
	}
	out, err := e.in(ctx, shard, ns, specs)
	if err != nil && e.forward.LearnMoved(err) {
		return e.enqueueBySlot(ctx, shard, ns, specs, TasksEnqueued{})
	}
	if err == nil && anyMoved(out.Out) { // a queue was spread a moment ago
		return e.enqueueBySlot(ctx, shard, ns, specs, out)
	}
	return out.Out, out.At, err
}

// enqueueBySlot enqueues the tasks that were not taken yet.
func (e *Enqueuer) enqueueBySlot(ctx context.Context, shard uint32, ns string, specs []task.Spec, before TasksEnqueued) ([]broker.Enqueued,
	broker.Stamp, error) {
	s := &slotEnqueue{to: e, ns: ns, shard: shard, specs: specs, out: before.Out, at: before.At}
	s.run(ctx)
	return s.out, s.at, nil
}

// routeWhole records the version by which each task is routed, if every queue is in one shard. It returns false if some queue is spread
// over shards.
func (e *Enqueuer) routeWhole(ns string, specs []task.Spec) bool {
	var q queues.Queue
	for i := range specs {
		if i == 0 || specs[i].Queue != specs[i-1].Queue {
			q, _ = e.queues.copy.Queue(ns, specs[i].Queue)
		}
		if q.Spread() {
			return false
		}
		specs[i].Routed = q.Config.Version
	}
	return true
}

func anyMoved(out []broker.Enqueued) bool {
	for i := range out {
		if errors.Is(out[i].Err, broker.ErrSlotMoved) {
			return true
		}
	}
	return false
}

// ShardOf returns the shard that takes the tasks of a queue's slot according to this node's copy of the map; 0: the copy does not have the
// queue.
func (e *Enqueuer) ShardOf(ns, queue string, slot int) uint32 {
	q, ok := e.queues.copy.Queue(ns, queue)
	if !ok {
		return 0
	}
	return q.HomeOf(slot)
}

// Deliver enqueues tasks wherever their queues are, each with its own result. It asks the shards in parallel, and
// leaves out those that are late.
func (e *Enqueuer) Deliver(ctx context.Context, ns string, specs []task.Spec) []broker.Enqueued {
	out := make([]broker.Enqueued, len(specs))
	deliver := func(ctx context.Context, shard uint32, index []int) error {
		got, _, err := e.Enqueue(ctx, shard, ns, pick(specs, index))
		return put(out, index, got, err)
	}
	shards := groupBy(all(specs), func(i int) uint32 {
		slot, _ := specs[i].Slot() // a message has one, because it has a request
		return e.ShardOf(ns, specs[i].Queue, slot)
	})
	inParallel(ctx, shards, out, func(ctx context.Context, shard uint32, index []int) error {
		if shard != 0 {
			return deliver(ctx, shard, index)
		}
		byQueue := groupBy(index, func(i int) string { return specs[i].Queue })
		inParallel(ctx, byQueue, out, func(ctx context.Context, queue string, index []int) error {
			q, err := e.queues.Place(ctx, ns, queue)
			if err != nil {
				return err
			}
			return deliver(ctx, q.Home(&specs[index[0]]), index)
		})
		return nil
	})
	return out
}

package enqueue

import (
	"context"
	"errors"
	"slices"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/router/directory"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

type enqueueArgs struct {
	Shard     uint32
	Namespace string
	Specs     []task.Spec
}

type enqueueAnswer struct {
	Out    []broker.Enqueued
	At     broker.Stamp
	Faults []*forward.Fault
}

func (a *enqueueAnswer) item(i int) *error { return &a.Out[i].Err }
func (a *enqueueAnswer) Pack()             { a.Faults = forward.FaultsOf(len(a.Out), a.item) }
func (a *enqueueAnswer) Unpack()           { forward.ErrorsOf(a.Faults, len(a.Out), a.item) }

// Broker is this node's broker. For shards that it does not lead, calls return *broker.NotLeader.
type Broker interface {
	Enqueue(ctx context.Context, shard uint32, ns string, specs []task.Spec) ([]broker.Enqueued, broker.Stamp, error)
	broker.GroupCalls
}

// Enqueuer enqueues tasks in the shards of their queues, wherever these are led.
type Enqueuer struct {
	forward *forward.Forwarder
	queues  *directory.Directory
	enqueue forward.Caller[enqueueArgs, enqueueAnswer]
	groups  *Groups
}

// New returns an Enqueuer for single tasks, and the Groups whose members it enqueues.
func New(f *forward.Forwarder, b Broker, q *directory.Directory, shown Reader) (*Enqueuer, *Groups) {
	e := &Enqueuer{forward: f, queues: q,
		enqueue: forward.Register(f, &forward.Method[enqueueArgs, enqueueAnswer]{Rule: verb.Rule{Name: "enqueue"}, Run: func(ctx context.Context, a enqueueArgs) (out enqueueAnswer, err error) {
			out.Out, out.At, err = b.Enqueue(ctx, a.Shard, a.Namespace, a.Specs)
			return out, err
		}})}
	e.groups = newGroups(f, b, e, shown)
	return e, e.groups
}

// Enqueue enqueues tasks in the shard where they belong according to the caller's copy of the map. Tasks that belong elsewhere by now go
// there.
func (e *Enqueuer) Enqueue(ctx context.Context, shard uint32, ns string, specs []task.Spec) ([]broker.Enqueued, broker.Stamp, error) {
	if slices.ContainsFunc(specs, IsNewMember) {
		return e.groups.enqueueMembers(ctx, shard, ns, specs)
	}
	if !e.routeWhole(ns, specs) {
		return e.enqueueBySlot(ctx, shard, ns, specs, enqueueAnswer{})
	}
	out, err := e.enqueue.Call(ctx, shard, enqueueArgs{shard, ns, specs})
	if err != nil && e.forward.LearnMoved(err) {
		return e.enqueueBySlot(ctx, shard, ns, specs, enqueueAnswer{})
	}
	if err == nil && anyMoved(out.Out) { // a queue was spread a moment ago
		return e.enqueueBySlot(ctx, shard, ns, specs, out)
	}
	return out.Out, out.At, err
}

// enqueueBySlot enqueues the tasks that were not taken yet.
func (e *Enqueuer) enqueueBySlot(ctx context.Context, shard uint32, ns string, specs []task.Spec, before enqueueAnswer) ([]broker.Enqueued, broker.Stamp, error) {
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
			q, _ = e.queues.Copied(ns, specs[i].Queue)
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
	q, ok := e.queues.Copied(ns, queue)
	if !ok {
		return 0
	}
	return q.HomeOf(slot)
}

// Deliver enqueues tasks wherever their queues are, each with its own result. It asks the shards in parallel, and leaves out those that are late.
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

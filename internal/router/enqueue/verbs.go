package enqueue

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Verbs are the calls on a broker that this package makes, wherever the shard is led.
var Verbs verb.Table[*broker.Broker]

// Enqueueing creates tasks in a shard, which has their queues. The specs must be complete and checked.
type Enqueueing struct {
	broker.OnShard
	Specs []task.Spec
}

// TasksEnqueued has a result for each task.
type TasksEnqueued struct {
	Out []broker.Enqueued
	broker.Stamped
	Faults []*forward.Fault // on the wire, those of Out
}

func (a *TasksEnqueued) item(i int) *error { return &a.Out[i].Err }

// Pack makes the answer ready to travel.
func (a *TasksEnqueued) Pack() { a.Faults = forward.FaultsOf(len(a.Out), a.item) }

// Unpack is the inverse of Pack.
func (a *TasksEnqueued) Unpack() { forward.ErrorsOf(a.Faults, len(a.Out), a.item) }

// EnqueueTasks creates tasks. It is not repeated when its outcome is unknown: only the caller knows whether its request ids make that safe.
var EnqueueTasks = verb.New(&Verbs, verb.Rule{Name: "enqueue"},
	func(b *broker.Broker, ctx context.Context, q Enqueueing) (out TasksEnqueued, err error) {
		out.Out, out.At, err = b.Enqueue(ctx, q.Shard, q.Namespace, q.Specs)
		return out, err
	})

// NewGroup creates a group and its members in a shard. The group must be complete and checked. Missing copies of the queues are brought to
// the shard.
type NewGroup struct {
	broker.OnShard
	Group  task.Group
	Queues []string
}

// GroupCreated has a result for each member.
type GroupCreated struct {
	Made broker.GroupMade
	broker.Stamped
	Faults []*forward.Fault // on the wire, those of the members
}

func (a *GroupCreated) item(i int) *error { return &a.Made.Tasks[i].Err }

// Pack makes the answer ready to travel.
func (a *GroupCreated) Pack() { a.Faults = forward.FaultsOf(len(a.Made.Tasks), a.item) }

// Unpack is the inverse of Pack.
func (a *GroupCreated) Unpack() { forward.ErrorsOf(a.Faults, len(a.Made.Tasks), a.item) }

// NewMembers adds tasks to a group.
type NewMembers struct {
	Namespace string
	ID        task.ID
	Tasks     []task.Spec
	Queues    []string
}

// TargetShard implements verb.Sharded.
func (q *NewMembers) TargetShard() uint32 { return q.ID.Shard() }

// MembersAdded has a result for each.
type MembersAdded struct {
	Joined []broker.Joined
	broker.Stamped
	Faults []*forward.Fault // on the wire, those of Joined
}

func (a *MembersAdded) item(i int) *error { return &a.Joined[i].Err }

// Pack makes the answer ready to travel.
func (a *MembersAdded) Pack() { a.Faults = forward.FaultsOf(len(a.Joined), a.item) }

// Unpack is the inverse of Pack.
func (a *MembersAdded) Unpack() { forward.ErrorsOf(a.Faults, len(a.Joined), a.item) }

// What creates something is not repeated when its outcome is unknown: only the caller knows whether its request id makes that safe.
var (
	CreateGroup = verb.New(&Verbs, verb.Rule{Name: "make-group"},
		func(b *broker.Broker, ctx context.Context, q NewGroup) (out GroupCreated, err error) {
			out.Made, out.At, err = b.MakeGroup(ctx, q.Shard, q.Namespace, q.Group, q.Queues)
			return out, err
		})
	// FindGroup returns the group that a request has created, or not_found.
	FindGroup = verb.New(&Verbs, verb.Rule{Name: "find-group", Idempotent: true},
		func(b *broker.Broker, ctx context.Context, q NewGroup) (out GroupCreated, err error) {
			out.Made, out.At, err = b.FindGroup(ctx, q.Shard, q.Namespace, q.Group)
			return out, err
		})
	AddToGroup = verb.New(&Verbs, verb.Rule{Name: "add-to-group"},
		func(b *broker.Broker, ctx context.Context, q NewMembers) (out MembersAdded, err error) {
			out.Joined, out.At, err = b.AddToGroup(ctx, q.Namespace, q.ID, q.Tasks, q.Queues)
			return out, err
		})
)

// TaskWait asks for a task, waiting up to Wait for it to end.
type TaskWait struct {
	broker.OnTask
	Wait time.Duration
}

// Waits implements verb.Waiting.
func (q *TaskWait) Waits() *time.Duration { return &q.Wait }

// ShowTask reads a task.
var ShowTask = verb.New(&Verbs, verb.Rule{Name: "task", Idempotent: true},
	func(b *broker.Broker, ctx context.Context, q TaskWait) (out broker.Shown[*broker.View], err error) {
		out.View, out.At, err = b.Task(ctx, q.Namespace, q.ID, q.Wait)
		return out, err
	})

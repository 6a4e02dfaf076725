package broker

import (
	"context"
	"math/rand/v2"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/actions"
	"github.com/pawlq/pawl/internal/engine/cache"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/unique"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// chunk bounds the tasks that one round of the archive or of an erased namespace changes, so that other calls are not held up.
const chunk = 500

// purgeChunk bounds the tasks that one round of a purge discards: about 2 ms of work.
const purgeChunk = 100

// CopiedQueues returns the queues that a shard's state has copies of.
func CopiedQueues(from store.Reader) ([]engine.CopiedQueue, error) { return engine.CopiedQueues(from) }

// Restored marks the state of a shard as restored from a backup, so that it remembers messages of other shards for
// their whole window from its start on: their senders may repeat them, however old the backup is.
func Restored(tx *store.Tx) error {
	cache.MarkRestored(tx)
	return nil
}

// QueueCopies holds the configurations of some queues as the system shard has them.
type QueueCopies struct {
	OnShard
	Since   uint64 // of the namespace: see engine.Begin
	Configs map[string]task.QueueConfig
}

// CopyQueues updates a shard's copies of queue configurations. Versions older than the copy are ignored.
var CopyQueues = receives(verb.Rule{Name: "copy-queues", Idempotent: true},
	func(round *engine.Round, q *QueueCopies) (verb.Nothing, error) {
		engine.Begin(round, q.Namespace, q.Since)
		for name, c := range q.Configs {
			engine.PutQueue(round, q.Namespace, name, c)
		}
		return verb.Nothing{}, nil
	})

// CopyOf names a shard's copy of a queue, up to a version.
type CopyOf struct {
	OnQueue
	Version uint64
}

// DropCopy removes a shard's copy of an empty queue, unless it is newer.
var DropCopy = receives(verb.Rule{Name: "drop-copy", Idempotent: true}, func(round *engine.Round, q *CopyOf) (verb.Nothing, error) {
	return verb.Nothing{}, engine.DropQueue(round, q.Namespace, q.Queue, q.Version)
})

// KeysUntil returns when the last idempotency key of a queue in a shard expires; 0 means that there is none.
var KeysUntil = reports(verb.Rule{Name: "keys-until"}, func(from store.Reader, q *OnQueue) (Time, error) {
	return query.KeysUntil(from, q.Namespace, q.Queue)
})

// OnSlots is a request about some slots of a queue in a shard.
type OnSlots struct {
	OnQueue
	Slots task.SlotSet
}

// HoldsUnique reports whether a task holds a unique key in one of the slots of a queue in a shard.
var HoldsUnique = reports(verb.Rule{Name: "holds-unique"}, func(from store.Reader, q *OnSlots) (bool, error) {
	return unique.HeldIn(from, q.Namespace, q.Queue, q.Slots), nil
})

// CheckKeys refuses a queue with tasks whose keys are in different slots, with the first such task in a shard as an example.
var CheckKeys = reads(verb.Rule{Name: "check-keys"}, func(from store.Reader, _ task.Scope, q *OnQueue) (verb.Nothing, error) {
	return verb.Nothing{}, query.CheckKeys(from, q.Namespace, q.Queue)
})

// QueueDescribed is the status of a queue in a shard.
type QueueDescribed struct {
	Info QueueInfo
	Stamped
}

// DescribeQueue returns the status of a queue in a shard. The age of its oldest task is that of a moment later.
var DescribeQueue = onReplica(verb.Rule{Name: "queue", Idempotent: true}, func(ctx context.Context, r *replica,
	q *OnQueue) (out QueueDescribed, err error) {
	out.Info, out.At, err = change(ctx, r, func(round *engine.Round) (QueueInfo, error) {
		return engine.DescribeQueue(round, q.Namespace, q.Queue)
	})
	if err != nil || out.Info.Ready == [3]int64{} {
		return out, err
	}
	since, at, err := read(ctx, r, func(from store.Reader) (Time, error) { return query.OldestReady(from, q.Namespace, q.Queue), nil })
	if out.At = at; err == nil && since != 0 {
		out.Info.OldestReady = max(at.Time.Sub(since), 0)
	}
	return out, err
})

// TaskList asks for a page of tasks that a filter selects. Cursor is the Next of the page before.
type TaskList struct {
	OnShard
	Filter Filter
	Cursor []byte
	Limit  int
}

// ListTasks reads a page of a shard's tasks, newest first.
var ListTasks = reads(verb.Rule{Name: "tasks"}, func(from store.Reader, scope task.Scope, q *TaskList) (out Paged[Page], err error) {
	q.Filter.Within = scope.Queues
	out.Page, err = query.List(from, q.Namespace, q.Filter, q.Cursor, q.Limit)
	return out, err
})

// QueueCommand is an operator's call on a queue.
type QueueCommand struct {
	OnQueue
	Authored
}

// Purged counts the tasks that a purge has discarded, also if it ends with an error.
type Purged struct {
	Done int64
	Stamped
}

// PurgeQueue discards the tasks of a queue that are waiting at the time of the call.
var PurgeQueue = onReplica(verb.Rule{Name: "purge"}, func(ctx context.Context, r *replica, q *QueueCommand) (out Purged, err error) {
	type step struct {
		n int
		engine.Purging
	}
	var s step
	of := actions.Bulk{By: q.By, Action: task.QueuePurged, Call: rand.Uint64(), Queue: q.Queue} // one audit entry for all rounds
	for !s.Done {
		last := s.Purging // the function may still run after change has returned, if the outcome is unknown
		s, out.At, err = change(ctx, r, func(round *engine.Round) (done step, err error) {
			if done.n, done.Purging, err = engine.Purge(round, q.Namespace, q.Queue, last, purgeChunk); err == nil {
				of.Record(round, q.Namespace, int64(done.n))
			}
			return done, err
		})
		if err != nil {
			return out, partlyDone(err, out.Done)
		}
		out.Done += int64(s.n)
	}
	return out, nil
})

// DeadOf names the dead letters or poisoned tasks of a queue; "" means all queues.
type DeadOf struct {
	OnQueue
	State task.State
}

// DeadGrouped counts dead letters by type and message. Partial is set if there are more than one call reads.
type DeadGrouped struct {
	Groups  []Group
	Partial bool
	Stamped
}

// GroupDead counts dead letters by type and normalized message.
var GroupDead = onReplica(verb.Rule{Name: "dead-groups", Idempotent: true}, func(ctx context.Context, r *replica, q *DeadOf) (DeadGrouped,
	error) {
	out, at, err := read(ctx, r, func(from store.Reader) (out DeadGrouped, err error) {
		now, _ := r.shard.Now()
		out.Groups, out.Partial = query.GroupDead(from, q.Namespace, q.Queue, task.ScopeOf(ctx), q.State, now)
		return out, nil
	})
	out.At = at
	return out, err
})

// warm reads the states of tasks that are about to change.
func warm(round *engine.Round, ns string, views []*View) {
	ids := make([]task.ID, len(views))
	for i, v := range views {
		ids[i] = v.ID
	}
	round.Warm(ns, ids)
}

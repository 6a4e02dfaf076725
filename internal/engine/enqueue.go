package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/engine/limit"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/engine/unique"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// NewTask is a completed and validated spec with what the broker adds to it.
type NewTask struct {
	task.Spec
	Namespace string
	// ID is derived from the request id if that is a UUIDv7 (then the task's row is the record of the request), else new.
	ID task.ID
	// Fresh means that ID cannot have been used before, so that no row is looked up.
	Fresh bool
	// AfterMoved means that a task of the same slot, before this one in the same call, was refused with ErrSlotMoved.
	// The slot may have moved here in between; but this task must not be created first.
	AfterMoved bool
	// Fingerprint is the Hash of the spec; 0: Enqueue makes it. It is better made before the round, because a large
	// payload takes milliseconds.
	Fingerprint uint64
}

// Accepted is the answer to an enqueue.
type Accepted struct {
	ID        task.ID
	State     task.State
	CreatedAt store.Time
	Duplicate bool // the idempotency key, request id or unique key already belonged to this task
	// KeyTaken means that the task is not the requested one: it holds the unique key or, if the broker itself enqueues,
	// the idempotency key.
	KeyTaken bool
	// Order is the task's place in the order of its key; 0: its queue has no strict order, or the task has no key.
	Order uint64
}

// Enqueue creates a task. A task that was moved here is accepted even if the queue is full, because it was accepted before.
//
// Errors: ErrUnknownQueue if the shard has no such queue yet; a conflict if the idempotency key or the request id
// belongs to a task with different content, or if another task holds the unique key and this one says reject;
// queue_full; ErrSlotMoved if none of these keys is known here and the task's slot is in another shard.
func Enqueue(r *Round, n *NewTask) (Accepted, error) {
	q := r.Queue(n.Namespace, n.Queue)
	if q == nil {
		return Accepted{}, ErrUnknownQueue
	}
	req := request{r: r, n: n, print: n.Fingerprint}
	if req.print == 0 {
		req.print = r.l.hasher.Hash(&n.Spec)
	}
	if a, err := req.earlier(); a.Duplicate || err != nil {
		return a, err
	}
	if n.OnlyFind || n.Routed == 0 && q.config.MayBeElsewhere(&n.Spec) { // the router asks the others, also for a task from the outbox
		return Accepted{}, ErrSlotMoved
	}
	var resolved unique.Resolution
	if n.Unique != nil {
		var err error
		if resolved, err = unique.Resolve(r, n.Namespace, &n.Spec); err != nil {
			return Accepted{}, err
		}
		if resolved.Duplicate {
			return Accepted{ID: resolved.HolderID, State: resolved.Holder.State, CreatedAt: resolved.Holder.CreatedAt, Duplicate: true,
				KeyTaken: true}, nil
		}
	}
	x := n.exec(r)
	if err := q.admit(n, x, &resolved); err != nil {
		return Accepted{}, err
	}
	if err := checkRunAt(r.now.Time(), &n.Spec, x); err != nil {
		return Accepted{}, err
	}
	e := newEnvelope(n, req.print)
	var replaced Change
	if n.Unique != nil {
		resolved.ApplyTo(x)
		if resolved.Replaced != nil {
			replaced = r.Change(n.Namespace, resolved.ReplacedID, resolved.Replaced)
			replaced.finishSilently(task.Discarded, task.ReasonReplaced)
		}
	}
	for _, admitted := range r.l.points.admitted {
		admitted(r, n, e, x)
	}
	r.l.row = e.AppendTo(r.l.row[:0])
	r.tx.Set(schema.IDKey(n.Namespace, schema.TableEnvelope, n.ID), r.l.row)
	c := Change{r: r, ns: n.Namespace, id: n.ID, q: q, To: x}
	c.Move()
	r.l.hot.KeepEnvelope(n.ID, e)
	r.idsOf(n.Namespace).Add(n.ID)
	req.assignKeys(x)
	if resolved.Replaced != nil {
		replaced.notifyEnd() // not earlier: the group may enqueue a task with the same key, which was free until now
	}
	return Accepted{ID: n.ID, State: x.State, CreatedAt: r.now, Order: x.Order}, nil
}

// admit refuses a new task that does not belong here, or for which there is no room.
func (q *Queue) admit(n *NewTask, x *schema.Exec, resolved *unique.Resolution) error {
	// While a unique key is held here, its tasks still belong here.
	closed := q.config.Closed
	moved := q.config.Closes(&n.Spec) || n.Routed != 0 && n.Routed < q.config.Moved
	switch stays := resolved.Taken() && (closed == 0 || closed == task.AllSlots || n.Slots().Len() == 1); {
	case moved && stays && n.IdempotencyKey != "": // another shard may give that away at the same time
		return task.Unavailable(time.Second, "unique.key %q of queue %q belongs to task %s in a shard that the key's slot has left: "+
			"a task that has an idempotency key too can't be enqueued before that task has ended",
			n.Unique.Key, n.Queue, resolved.HolderID)
	case moved && !stays, n.AfterMoved && !resolved.Taken():
		return ErrSlotMoved
	}
	if n.Moved != nil { // it was accepted before
		return nil
	}
	more, size := int64(1), x.Size
	if old := resolved.Replaced; old != nil {
		more, size = 0, size-old.Size
	}
	if err := q.own.Admit(more, "queue %q is full: its length is %d"); err != nil {
		return err
	}
	return q.space.Admit(more, size)
}

func newEnvelope(n *NewTask, print uint64) *schema.Envelope {
	e := &schema.Envelope{ID: n.ID, Namespace: n.Namespace, Queue: n.Queue, Type: n.Type, Key: n.Key, Payload: n.Payload,
		ContentType: n.ContentType, IdempotencyKey: n.IdempotencyKey, Fingerprint: print, Retry: n.Retry,
		Timeout: n.Timeout, Tags: n.Tags, Headers: n.Headers, Parent: n.Parent}
	if n.IdempotencyTTL != task.DefaultKeyTTL {
		e.IdempotencyTTL = n.IdempotencyTTL
	}
	return e
}

// ErrUnknownQueue means that the shard has no copy of the queue's settings yet, or one that is too old for the call.
// The broker fetches it, creates the queue if need be, and tries again; no caller sees this error.
var ErrUnknownQueue = errors.New("the shard has no such queue")

// ErrSlotMoved means that the task's slot is in another shard, or was at some time since the task was routed, so that
// other shards must be asked first. Its keys and its request id belong to no task of this shard, and this call can no
// longer create one. The router asks the next shard; no caller sees this error.
var ErrSlotMoved error = &task.Error{Code: task.CodeUnavailable, Reason: "slot_moved", RetryAfter: 100 * time.Millisecond,
	Message: "the task's slot of its queue is in another shard now"}

// exec returns the task's initial state.
func (n *NewTask) exec(r *Round) *schema.Exec {
	x := &schema.Exec{State: task.Ready, Priority: n.Priority, Queue: n.Queue, Type: n.Type, Key: n.Key, MaxAttempts: n.MaxAttempts,
		Retention: n.Retention, CreatedAt: r.now, RunAt: r.now, Cost: n.Cost, Unique: n.Unique,
		Links: schema.LinksOf(&n.Spec), Size: n.Spec.Size()}
	if n.Delay > 0 {
		x.RunAt = r.now.Add(n.Delay)
	}
	if !n.RunAt.IsZero() {
		x.RunAt = max(store.TimeOf(n.RunAt), 0)
	}
	if n.IdempotencyKey != "" {
		x.KeyedUntil = r.now.Add(n.IdempotencyTTL)
	}
	if n.ExpiresIn > 0 {
		x.ExpiresAt, x.ExpiresAlways = r.now.Add(n.ExpiresIn), n.ExpiresAlways
	}
	if x.RunAt > r.now {
		x.State = task.Scheduled
	} else {
		r.MakeReady(x)
	}
	return x
}

// checkRunAt refuses due times too far from now, of the task and of its follow-up tasks: otherwise a follow-up would be
// refused when its parent succeeds, perhaps a year from now, and nobody would hear of it.
func checkRunAt(now time.Time, s *task.Spec, x *schema.Exec) error {
	if err := task.CheckRunAt("run_at", x.RunAt.Time(), now); err != nil {
		return err
	}
	for i := range s.Then {
		if err := CheckThenAt(fmt.Sprintf("then[%d]", i), &s.Then[i], now); err != nil {
			return err
		}
	}
	return nil
}

// CheckThenAt refuses due times too far from now, of a follow-up task and of its own follow-ups.
func CheckThenAt(path string, s *task.Spec, now time.Time) error {
	if err := task.CheckRunAt(path+".run_at", s.RunAt, now); err != nil {
		return err
	}
	for i := range s.Then {
		if err := CheckThenAt(fmt.Sprintf("%s.then[%d]", path, i), &s.Then[i], now); err != nil {
			return err
		}
	}
	return nil
}

// MakeReady puts a task at the end of its lane.
func (r *Round) MakeReady(x *schema.Exec) {
	x.State, x.ReadyAt, x.Seq = task.Ready, r.now, r.NextSeq()
}

// RoomFor returns an error if the queues of this shard have no room for the tasks. Tasks of other shards are not
// counted: they wait in the outbox.
func (r *Round) RoomFor(ns string, tasks []task.Spec) error {
	n := unique.Needs{Round: r, Namespace: ns}
	wanted := map[*Queue]int64{}
	var all, size int64
	var in *limit.Space
	for i := range tasks {
		q := r.Queue(ns, tasks[i].Queue)
		if q == nil || q.config.Closes(&tasks[i]) {
			continue
		}
		more, bytes := n.Of(&tasks[i])
		wanted[q] += more
		in, all, size = q.space, all+more, size+bytes
		if err := q.own.Admit(wanted[q], "queue %q has no room for all tasks of the group: %d wait"); err != nil {
			return err
		}
	}
	if in != nil {
		return in.Admit(all, size)
	}
	return nil
}

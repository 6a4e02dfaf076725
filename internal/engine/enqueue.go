package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/engine/quota"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/engine/unique"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// DedupWindow is how long at least a repeated request id finds its task, whatever the task's retention.
const DedupWindow = 10 * time.Minute

// NewTask is a filled and checked spec with what the broker adds to it.
type NewTask struct {
	task.Spec
	Namespace string
	// ID is derived from the request id if that is a UUIDv7 (then the task's row is the record of the request), else new.
	ID task.ID
	// Fresh says that nobody can have used ID before, so that no row is looked for.
	Fresh bool
}

// Accepted is the answer to an enqueue.
type Accepted struct {
	ID        task.ID
	State     task.State
	CreatedAt store.Time
	Duplicate bool // an idempotency key, request or unique key had this task already
	// Met: a unique key had it, or, of a task that the broker itself enqueues, an idempotency key: another task than the one that
	// was asked for.
	Met bool
	// Order is the task's place in the order of its key; 0: its queue has no strict order, or the task no key.
	Order uint64
}

// Enqueue makes a task.
// A task that was moved here comes in also when the queue is full: it was accepted once.
//
// Errors: ErrUnknownQueue if the shard has no such queue yet; a conflict if the idempotency key or the request id stands
// for a task of other content, or if the unique key is another's and the task says reject; queue_full; ErrSlotMoved if none of
// these is known here and the task's slot lies in another shard.
func Enqueue(r *Round, n *NewTask) (Accepted, error) {
	q := r.Queue(n.Namespace, n.Queue)
	if q == nil {
		return Accepted{}, ErrUnknownQueue
	}
	req := request{r: r, n: n, print: contentHash(n)}
	if a, err := req.earlier(); a.Duplicate || err != nil {
		return a, err
	}
	var met unique.Meeting
	if n.Unique != nil {
		var err error
		if met, err = unique.Meet(r, n.Namespace, &n.Spec); err != nil {
			return Accepted{}, err
		}
		if met.Duplicate {
			return Accepted{ID: met.HolderID, State: met.Holder.State, CreatedAt: met.Holder.CreatedAt, Duplicate: true, Met: true}, nil
		}
	}
	x := n.exec(r)
	if err := q.admit(n, x, &met); err != nil {
		return Accepted{}, err
	}
	if err := checkRunAt(r.now.Time(), &n.Spec, x); err != nil {
		return Accepted{}, err
	}
	e := newEnvelope(n, req.print)
	var replaced Change
	if n.Unique != nil {
		met.TakePlace(x)
		if met.Replaced != nil {
			replaced = r.Change(n.Namespace, met.ReplacedID, met.Replaced)
			replaced.finishUntold(task.Discarded, task.ReasonReplaced)
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
	req.remember(x)
	if met.Replaced != nil {
		replaced.tellEnd() // not before: the group may enqueue a task that asks for the same key, which was free until now
	}
	return Accepted{ID: n.ID, State: x.State, CreatedAt: r.now, Order: x.Order}, nil
}

// admit refuses a new task that may not come here, or for which there is no room.
func (q *Queue) admit(n *NewTask, x *schema.Exec, met *unique.Meeting) error {
	// While a unique key is held here, its tasks go on to come here.
	if q.config.Closed != 0 && !met.Taken() && SlotClosed(q.config.Closed, &n.Spec) || n.Routed != 0 && n.Routed < q.config.Moved {
		return ErrSlotMoved
	}
	if n.Moved != nil { // it was accepted once
		return nil
	}
	if most := q.config.Settings.MaxLength; most > 0 && q.counts.Waiting()-met.Leaving() >= most {
		return &task.Error{Code: task.CodeQueueFull, RetryAfter: time.Second,
			Message: fmt.Sprintf("queue %q is full: its length is %d, max_length is %d", n.Queue, q.counts.Waiting(), most)}
	}
	return q.space.Admit(1, met.Leaving(), x.Size)
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

// ErrUnknownQueue: the shard has no copy of the queue's settings yet. The broker creates the queue and tries again; no
// caller sees it.
var ErrUnknownQueue = errors.New("the shard has no such queue")

// ErrSlotMoved: the task's slot lies in another shard, or did since the task was routed, so that others are to be asked for it
// first. Its key and its request stand for no task of this one, and by this way no longer can. The router asks the next shard; no
// caller sees it.
var ErrSlotMoved error = &task.Error{Code: task.CodeUnavailable, Reason: "slot_moved", RetryAfter: 100 * time.Millisecond,
	Message: "the task's slot of its queue lies in another shard by now"}

// SlotClosed says whether a task belongs to one of the closed slots. One that fits in any goes where one is open.
func SlotClosed(slots task.SlotSet, s *task.Spec) bool {
	if slot, ok := s.Slot(); ok {
		return slots.Has(slot)
	}
	return slots == task.AllSlots
}

// exec is how the task begins.
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
		x.ExpiresAt = r.now.Add(n.ExpiresIn)
	}
	if x.RunAt > r.now {
		x.State = task.Scheduled
	} else {
		r.MakeReady(x)
	}
	return x
}

// checkRunAt refuses a due time too far from now, of the task or of what follows it: a year from now the latter would be refused,
// and nobody would hear of it.
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

// RoomFor refuses tasks for which the queues of this shard have no room. Those of other shards wait on their way.
func (r *Round) RoomFor(ns string, tasks []task.Spec) error {
	wanted := map[*Queue]int64{}
	var all, size int64
	var in *quota.Space
	for i := range tasks {
		q := r.Queue(ns, tasks[i].Queue)
		if q == nil || SlotClosed(q.config.Closed, &tasks[i]) {
			continue
		}
		wanted[q]++
		in, all, size = q.space, all+1, size+tasks[i].Size()
		if most := q.config.Settings.MaxLength; most > 0 && q.counts.Waiting()+wanted[q] > most {
			return &task.Error{Code: task.CodeQueueFull, RetryAfter: time.Second, Message: fmt.Sprintf(
				"queue %q has no room for all tasks of the group: %d wait, max_length is %d", q.name, q.counts.Waiting(), most)}
		}
	}
	if in != nil {
		return in.Admit(all, 0, size)
	}
	return nil
}

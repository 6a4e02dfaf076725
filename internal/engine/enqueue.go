package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"

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
	print := contentHash(n)
	if a, err := r.earlier(n, print); a.Duplicate || err != nil {
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
	x := r.newExec(n)
	if err := q.admit(n, x, &met); err != nil {
		return Accepted{}, err
	}
	if err := r.checkRunAt(&n.Spec, x); err != nil {
		return Accepted{}, err
	}
	e := newEnvelope(n, print)
	if n.Unique != nil {
		met.TakePlace(x)
		r.replace(n.Namespace, q, &met)
	}
	for _, admitted := range r.l.points.admitted {
		admitted(r, n, e, x)
	}
	r.l.row = e.AppendTo(r.l.row[:0])
	r.tx.Set(schema.IDKey(n.Namespace, schema.TableEnvelope, n.ID), r.l.row)
	r.Move(n.Namespace, n.ID, q, nil, x)
	r.l.hot.KeepEnvelope(n.ID, e)
	r.idsOf(n.Namespace).Add(n.ID)
	r.rememberKeys(n, print, x.Order)
	r.tellReplaced(n.Namespace, &met)
	return Accepted{ID: n.ID, State: x.State, CreatedAt: r.now, Order: x.Order}, nil
}

// replace discards the task that makes room for one with the same unique key. Its group must not hear of it before the new task is
// there: it may enqueue one that asks for the same key, which would be free. See tellReplaced.
func (r *Round) replace(ns string, q *Queue, m *unique.Meeting) {
	if m.Replaced != nil {
		to := *m.Replaced
		r.finishUntold(ns, m.ReplacedID, q, m.Replaced, &to, task.Discarded, task.ReasonReplaced)
		m.Replaced = &to
	}
}

// tellReplaced lets the group of the task that made room know.
func (r *Round) tellReplaced(ns string, m *unique.Meeting) {
	if m.Replaced != nil {
		r.tellEnd(ns, m.ReplacedID, m.Replaced)
	}
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
	if most := q.config.Settings.MaxLength; most > 0 && q.counts.Waiting()-met.Leave() >= most {
		return &task.Error{Code: task.CodeQueueFull, RetryAfter: time.Second,
			Message: fmt.Sprintf("queue %q is full: %d tasks wait, max_length is %d", n.Queue, q.counts.Waiting(), most)}
	}
	return q.space.Admit(1, met.Leave(), x.Size)
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

func (r *Round) newExec(n *NewTask) *schema.Exec {
	x := &schema.Exec{State: task.Ready, Priority: n.Priority, Queue: n.Queue, Type: n.Type, Key: n.Key, MaxAttempts: n.MaxAttempts,
		Retention: n.Retention, CreatedAt: r.now, RunAt: r.now, Keyed: n.IdempotencyKey != "", Cost: n.Cost, Unique: n.Unique,
		Links: schema.LinksOf(&n.Spec), Size: n.Spec.Size()}
	if n.Delay > 0 {
		x.RunAt = r.now.Add(n.Delay)
	}
	if !n.RunAt.IsZero() {
		x.RunAt = max(store.TimeOf(n.RunAt), 0)
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
func (r *Round) checkRunAt(s *task.Spec, x *schema.Exec) error {
	if err := task.CheckRunAt("run_at", x.RunAt.Time(), r.now.Time()); err != nil {
		return err
	}
	for i := range s.Then {
		if err := CheckThenAt(fmt.Sprintf("then[%d]", i), &s.Then[i], r.now.Time()); err != nil {
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

// earlier finds the task that an idempotency key or a request id stands for already.
func (r *Round) earlier(n *NewTask, print uint64) (Accepted, error) {
	if n.Archived != (task.ID{}) {
		return r.restoredEarlier(n, print)
	}
	if n.IdempotencyKey != "" {
		if a, err := r.byKey(schema.IdempotencyKey(n.Namespace, n.Queue, n.IdempotencyKey), n, print, "idempotency_key", n.IdempotencyKey); a.Duplicate || err != nil {
			a.Met = a.Duplicate && n.born() && !r.isRequest(n, a.ID)
			return a, err
		}
	}
	if n.RequestID != (task.ID{}) && !n.RequestID.IsV7() {
		return r.byRequest(n, print)
	}
	if n.Fresh || r.idsOf(n.Namespace).IsNew(n.ID) {
		return Accepted{}, nil
	}
	x, err := r.Exec(n.Namespace, n.ID)
	if err != nil { // forgotten, or the request is new
		return r.byKey(schema.ForgottenKey(n.Namespace, n.ID), n, print, "request_id", n.RequestID.String())
	}
	if schema.ReadEnvelope(r.tx, n.Namespace, n.ID).Fingerprint != print {
		return Accepted{}, reused("request_id", n.RequestID.String(), n.ID)
	}
	return Accepted{ID: n.ID, State: x.State, CreatedAt: x.CreatedAt, Duplicate: true, Order: x.Order}, nil
}

// restoredEarlier finds the task as which an archived one came back already. The idempotency key of the archived task goes over to the new
// one; if it stands for another task, it is a conflict.
func (r *Round) restoredEarlier(n *NewTask, print uint64) (Accepted, error) {
	if a, err := r.byRequest(n, print); a.Duplicate || err != nil || n.IdempotencyKey == "" {
		return a, err
	}
	k, ok := r.keyRow(schema.IdempotencyKey(n.Namespace, n.Queue, n.IdempotencyKey))
	if ok && k.Until > r.now && k.ID != n.Archived {
		return Accepted{}, &task.Error{Code: task.CodeConflict, Field: "idempotency_key",
			Message: fmt.Sprintf("idempotency_key %q stands for task %s by now", n.IdempotencyKey, k.ID)}
	}
	return Accepted{}, nil
}

// byRequest finds the task of a request id that is no UUIDv7.
func (r *Round) byRequest(n *NewTask, print uint64) (Accepted, error) {
	return r.byKey(schema.IDKey(n.Namespace, schema.TableRequest, n.RequestID), n, print, "request_id", n.RequestID.String())
}

// born says whether the broker itself enqueues the task.
func (n *NewTask) born() bool { return n.Parent != nil || n.Member != nil || n.RequestTTL > 0 }

// isRequest says whether a task was made by this same request.
func (r *Round) isRequest(n *NewTask, id task.ID) bool {
	k, ok := r.keyRow(schema.IDKey(n.Namespace, schema.TableRequest, n.RequestID))
	return ok && k.ID == id
}

func (r *Round) byKey(row []byte, n *NewTask, print uint64, field, value string) (Accepted, error) {
	k, ok := r.keyRow(row)
	if !ok || k.Until <= r.now {
		return Accepted{}, nil
	}
	if k.Fingerprint != print {
		return Accepted{}, reused(field, value, k.ID)
	}
	if x, err := r.Exec(n.Namespace, k.ID); err == nil {
		k.Ended, k.Created = x.State, x.CreatedAt
	} else if k.Ended == 0 {
		f, _ := r.keyRow(schema.ForgottenKey(n.Namespace, k.ID))
		k.Ended, k.Created = f.Ended, f.Created
	}
	return Accepted{ID: k.ID, Duplicate: true, State: k.Ended, CreatedAt: k.Created, Order: k.Order}, nil
}

func (r *Round) keyRow(key []byte) (schema.KeyRow, bool) {
	row, ok := r.tx.Get(key)
	if !ok {
		return schema.KeyRow{}, false
	}
	k, err := schema.DecodeKey(row)
	schema.Must(err)
	return k, true
}

func (r *Round) rememberKeys(n *NewTask, print, order uint64) {
	if n.IdempotencyKey != "" {
		r.setKey(n.Namespace, schema.OnKey, schema.IdempotencyKey(n.Namespace, n.Queue, n.IdempotencyKey), schema.KeyRow{ID: n.ID, Fingerprint: print, Until: r.now.Add(n.IdempotencyTTL), Order: order})
	}
	if n.RequestID != (task.ID{}) && !n.RequestID.IsV7() {
		r.setKey(n.Namespace, schema.OnRequest, schema.IDKey(n.Namespace, schema.TableRequest, n.RequestID), schema.KeyRow{ID: n.ID, Fingerprint: print, Until: r.now.Add(max(DedupWindow, n.RequestTTL))})
	}
}

// setKey writes a row that ends by itself. A row that it replaces has its own deadline, which then finds a later end.
func (r *Round) setKey(ns string, kind schema.DeadlineKind, key []byte, k schema.KeyRow) {
	r.tx.Set(key, k.Encode())
	r.SetDeadline(k.Until, kind, ns, key[len(ns)+2:])
}

func reused(field, value string, id task.ID) error {
	return &task.Error{Code: task.CodeConflict, Field: field,
		Message: fmt.Sprintf("%s %q stands for task %s, which has another type, payload or queue", field, value, id)}
}

// contentHash sums up what must be the same when a key is used again.
func contentHash(n *NewTask) uint64 {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.WriteString(n.Queue)
	if n.AnyContent {
		return d.Sum64()
	}
	_, _ = d.Write([]byte{0})
	_, _ = d.WriteString(n.Type)
	_, _ = d.Write([]byte{0})
	_, _ = d.WriteString(n.ContentType)
	_, _ = d.Write([]byte{0})
	_, _ = d.Write(n.Payload)
	return d.Sum64()
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

package engine

import (
	"bytes"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/engine/unique"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Retry replays an ended task that did not succeed, with fresh attempts, and starts the next attempt of a retrying one
// now. The task keeps its id, idempotency key and attempt log.
//
// A task whose unique key has passed to another task, or that was moved to another queue, is refused with
// task.ErrWrongState, which names the other task. So is one whose unique key may have passed to a task in another
// shard.
func Retry(r *Round, ns string, id task.ID) error {
	from, err := r.Exec(ns, id)
	if err != nil {
		return err
	}
	switch from.State {
	case task.Dead, task.Poisoned, task.Discarded, task.Cancelled, task.Retrying:
	default:
		return task.WrongState("retry", id, from.State)
	}
	if from.Reason == task.ReasonMoved {
		return movedOn("retry", id, from)
	}
	q := r.Queue(ns, from.Queue)
	if q == nil {
		return ErrUnknownQueue
	}
	if other, taken := unique.Taken(r, ns, from); taken && from.State.Ended() {
		return &task.Error{Code: task.CodeWrongState, State: from.State,
			Message: fmt.Sprintf("retry %q: its unique key %q now belongs to task %s", id, from.Unique.Key, other)}
	}
	if from.State.Ended() && unique.Elsewhere(&q.config, from) {
		cure := "enqueue it again"
		if from.State == task.Dead || from.State == task.Poisoned {
			cure = "discard it and restore it from the archive"
		}
		return &task.Error{Code: task.CodeWrongState, State: from.State,
			Message: fmt.Sprintf("retry %q: a task in another shard may hold its unique key %q, since slots of queue %q have moved: %s",
				id, from.Unique.Key, from.Queue, cure)}
	}
	c := r.Change(ns, id, from)
	to := c.To
	if from.State.Ended() {
		to.Exhausted = to.Failures + to.Crashes
		to.EndedAt, to.KeptUntil, to.Reason, to.ExpiresAt, to.Fingerprint = 0, 0, "", 0, 0
		to.Links = to.Links.NextRevision()
	}
	to.RunAt = r.now
	r.MakeReady(to)
	c.Move()
	if from.State.Ended() && to.Links.Member() {
		c.notifyLinked(schema.Result{})
	}
	return nil
}

// RunNow makes a scheduled or retrying task ready.
func RunNow(r *Round, ns string, id task.ID) error {
	from, err := r.Exec(ns, id)
	if err != nil {
		return err
	}
	switch from.State {
	case task.Ready:
		return nil
	case task.Scheduled, task.Retrying:
	default:
		return task.WrongState("run", id, from.State)
	}
	c := r.Change(ns, id, from)
	c.To.RunAt = r.now
	r.MakeReady(c.To)
	c.Move()
	return nil
}

// Discard ends a task that waits, or drops a dead letter or poisoned task. The caller has archived a dead letter as it
// was when it ended at time ended; one that has changed since is left alone.
func Discard(r *Round, ns string, id task.ID, ended store.Time) error {
	from, err := r.Exec(ns, id)
	if err != nil {
		return err
	}
	switch {
	case from.State == task.Discarded:
		return nil
	case from.State.Waiting():
	case (from.State == task.Dead || from.State == task.Poisoned) && from.EndedAt == ended:
	default:
		return task.WrongState("discard", id, from.State)
	}
	c := r.Change(ns, id, from)
	c.Finish(task.Discarded, task.ReasonOperator)
	return nil
}

// Edit is a change of a task that waits.
type Edit struct {
	RunAt       *time.Time
	Priority    task.Priority // 0: as it is
	Payload     *[]byte
	MaxAttempts int // 0: as it is
	// IfETag is the tag of the version on which the edit is based; "": any.
	IfETag string
}

// isAsked reports whether the task already is as the edit asks, so that a call whose answer was lost can be repeated.
func (e *Edit) isAsked(x *schema.Exec, payload []byte) bool {
	return (e.RunAt == nil || store.TimeOf(*e.RunAt) == x.RunAt) && (e.Priority == 0 || e.Priority == x.Priority) &&
		(e.MaxAttempts == 0 || e.MaxAttempts == x.MaxAttempts) && (e.Payload == nil || bytes.Equal(*e.Payload, payload))
}

// checkETag returns an error if the task has changed since the version on which the edit is based.
func (e *Edit) checkETag(r *Round, ns string, id task.ID, x *schema.Exec) error {
	if e.IfETag == "" {
		return nil
	}
	payload := schema.ReadEnvelope(r.tx, ns, id).Payload
	if e.isAsked(x, payload) {
		return nil
	}
	return schema.EditedOf(x, payload).Check(e.IfETag)
}

// Update changes a task that is not claimed and has not ended.
func Update(r *Round, ns string, id task.ID, e Edit) error {
	from, err := r.Exec(ns, id)
	if err != nil {
		return err
	}
	if !from.State.Waiting() {
		return task.WrongState("update", id, from.State)
	}
	if err := e.checkETag(r, ns, id, from); err != nil {
		return err
	}
	if e.RunAt != nil {
		if err := task.CheckRunAt("run_at", *e.RunAt, r.now.Time()); err != nil {
			return err
		}
	}
	c := r.Change(ns, id, from)
	if e.Priority != 0 {
		c.To.Priority = e.Priority
	}
	if e.MaxAttempts != 0 {
		c.To.MaxAttempts = e.MaxAttempts
	}
	if e.RunAt != nil {
		c.due(store.TimeOf(*e.RunAt))
	}
	if e.Payload != nil {
		if err := c.setPayload(*e.Payload); err != nil {
			return err
		}
	}
	r.l.hot.Drop(id) // with the old payload
	c.Move()
	return nil
}

// due changes the due time of a waiting task.
func (c *Change) due(at store.Time) {
	c.To.RunAt = at
	switch {
	case at > c.r.now && c.To.State == task.Ready:
		c.To.State = task.Scheduled
	case at <= c.r.now && c.To.State != task.Ready:
		c.r.MakeReady(c.To)
	}
}

// setPayload replaces a task's payload, if its namespace has room for it.
func (c *Change) setPayload(payload []byte) error {
	env := schema.ReadEnvelope(c.r.tx, c.ns, c.id)
	more := int64(len(payload) - len(env.Payload))
	if err := c.q.space.Admit(0, more); err != nil {
		return err
	}
	c.To.Size += more
	env.Payload = payload
	c.r.tx.Set(schema.IDKey(c.ns, schema.TableEnvelope, c.id), env.Encode())
	return nil
}

// movedOn returns the error of a verb on a task that was moved to another queue.
func movedOn(verb string, id task.ID, x *schema.Exec) error {
	where := "on its way to another queue"
	if x.MovedTo != (task.ID{}) {
		where = fmt.Sprintf("in another queue as task %s", x.MovedTo)
	}
	return &task.Error{Code: task.CodeWrongState, State: x.State, Message: fmt.Sprintf("%s %q: it was moved, and is %s", verb, id, where)}
}

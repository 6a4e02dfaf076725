package engine

import (
	"fmt"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// A task never changes queue or shard. To move one, its old self ends and a new one is sent to the other queue, both in one entry.
// The message goes through the outbox, also when the other queue lies in the same shard, and comes there exactly once. Should the
// other queue not take it, the old self comes back.

// moveAway ends a task that waits and sends it to another queue. All that its producer said goes along, and its checkpoint;
// attempts begin anew, and the idempotency key stays: a repeat of the enqueue still finds the old self, which knows the new one.
func (r *Round) moveAway(ns string, c *StepCall, t Selected, x *schema.Exec) {
	e := r.envelope(ns, t.ID)
	spec := task.Spec{Type: e.Type, Payload: e.Payload, ContentType: e.ContentType, Queue: c.ToQueue, Priority: x.Priority,
		MaxAttempts: x.MaxAttempts, Retry: e.Retry, Timeout: e.Timeout, Retention: x.Retention, Key: e.Key, Cost: x.Cost,
		Tags: e.Tags, Headers: e.Headers, Unique: x.Unique, Parent: e.Parent, Moved: &task.Moved{From: t.ID, Operation: c.Operation, Checkpoint: r.checkpoint(ns, t.ID, x)}}
	if x.State != task.Ready {
		spec.RunAt = x.RunAt.Time()
	}
	if x.AwaitsStart() {
		spec.ExpiresIn = max(x.ExpiresAt.Sub(r.now), 1)
	}
	to := *x
	r.finish(ns, t.ID, r.queueOf(ns, x), x, &to, task.Discarded, task.ReasonMoved)
	r.send(ns, &OutboxMessage{Request: moveRequest(t.ID, c.Operation), Spec: spec, From: Origin{Operation: c.Operation}})
}

// moveRequest names a task that an operation moves as a request.
func moveRequest(id, operation task.ID) task.ID {
	return requestOf(id, birth(operation, 0))
}

// settleIn lets a task that was moved here know from where, and have its checkpoint.
func (r *Round) settleIn(n *NewTask, e *schema.Envelope, x *schema.Exec) {
	e.MovedFrom, x.Operation = n.Moved.From, n.Moved.Operation
	if x.Checkpointed = len(n.Moved.Checkpoint) > 0; x.Checkpointed {
		r.tx.Set(schema.IDKey(n.Namespace, schema.TableCheckpoint, n.ID), n.Moved.Checkpoint)
	}
}

// arrived notes what became of a task that an operation sent to another queue.
func (r *Round) arrived(ns string, p *OutboxMessage, a Accepted, refused *task.Error) {
	s, ok := readStep(r.tx, ns, p.From.Operation)
	if !ok {
		schema.Must(fmt.Errorf("operation %s moves a task and has no step", p.From.Operation))
	}
	s.away--
	id := p.Spec.Moved.From
	switch {
	case a.Met, refused != nil && refused.Code == task.CodeConflict:
		r.comeBack(ns, id)
		s.arrived.skip(task.SkipUniqueKey, 1)
	case refused != nil:
		r.comeBack(ns, id)
		s.arrived.fail(id, refused.Message)
	default:
		s.arrived.Done++
		r.livesOn(ns, id, a.ID)
	}
	r.setStep(ns, p.From.Operation, s)
}

// livesOn notes as which task another lives on.
func (r *Round) livesOn(ns string, id, as task.ID) {
	x, err := r.exec(ns, id)
	if err != nil || x.Reason != task.ReasonMoved { // its retention is over
		return
	}
	to := *x
	to.MovedTo = as
	r.setExec(ns, id, &to)
	r.l.hot.drop(id)
}

// comeBack lets a task wait again that no other queue takes. If another has its unique key by now, that one is newer, and it stays
// discarded.
func (r *Round) comeBack(ns string, id task.ID) {
	x, err := r.exec(ns, id)
	if err != nil || x.Reason != task.ReasonMoved {
		return
	}
	q := r.queue(ns, x.Queue)
	if q == nil {
		return // deleted with all that was left in it
	}
	to := *x
	if _, taken := r.keyTaken(ns, x); taken {
		to.Reason = task.ReasonReplaced
		r.setExec(ns, id, &to)
		r.l.hot.drop(id)
		return
	}
	to.EndedAt, to.KeptUntil, to.Reason = 0, 0, ""
	if to.RunAt > r.now {
		to.State = task.Scheduled
	} else {
		r.makeReady(&to)
	}
	r.move(ns, id, q, x, &to)
}

// movedOn refuses a verb on a task that lives on in another queue.
func movedOn(verb string, id task.ID, x *schema.Exec) error {
	where := "on its way to another queue"
	if x.MovedTo != (task.ID{}) {
		where = fmt.Sprintf("in another queue as task %s", x.MovedTo)
	}
	return &task.Error{Code: task.CodeWrongState, State: x.State, Message: fmt.Sprintf("%s %q: it was moved, and is %s", verb, id, where)}
}

package operation

import (
	"fmt"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/outbox"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/engine/unique"
	"github.com/pawlq/pawl/internal/task"
)

// A task never changes queue or shard. To move one, its old self ends and a new one is sent to the other queue, both in one entry.
// The message goes through the outbox, also when the other queue lies in the same shard, and comes there exactly once. Should the
// other queue not take it, the old self comes back.

// moveAway ends a task that waits and sends it to another queue. All that its producer said goes along, and its checkpoint;
// attempts begin anew, and the idempotency key stays: a repeat of the enqueue still finds the old self, which knows the new one.
func moveAway(r *engine.Round, ns string, c *StepCall, t Selected, x *schema.Exec) {
	e := r.Envelope(ns, t.ID)
	spec := task.Spec{Type: e.Type, Payload: e.Payload, ContentType: e.ContentType, Queue: c.ToQueue, Priority: x.Priority,
		MaxAttempts: x.MaxAttempts, Retry: e.Retry, Timeout: e.Timeout, Retention: x.Retention, Key: e.Key, Cost: x.Cost,
		Tags: e.Tags, Headers: e.Headers, Unique: x.Unique, Parent: e.Parent, Moved: &task.Moved{From: t.ID, Operation: c.Operation, Checkpoint: r.Checkpoint(ns, t.ID, x)}}
	if x.State != task.Ready {
		spec.RunAt = x.RunAt.Time()
	}
	if x.AwaitsStart() {
		spec.ExpiresIn = max(x.ExpiresAt.Sub(r.Now()), 1)
	}
	old := r.Change(ns, t.ID, x)
	old.Finish(task.Discarded, task.ReasonMoved)
	r.Send(ns, &outbox.Message{Request: engine.MoveRequest(t.ID, c.Operation), Spec: spec, From: outbox.Origin{Operation: c.Operation}})
}

// settleIn lets a task that was moved here know from where, and have its checkpoint.
func settleIn(r *engine.Round, n *engine.NewTask, e *schema.Envelope, x *schema.Exec) {
	if n.Moved == nil {
		return
	}
	e.MovedFrom, x.Operation = n.Moved.From, n.Moved.Operation
	if x.Checkpointed = len(n.Moved.Checkpoint) > 0; x.Checkpointed {
		r.Tx().Set(schema.IDKey(n.Namespace, schema.TableCheckpoint, n.ID), n.Moved.Checkpoint)
	}
}

// arrived notes what became of a task that an operation sent to another queue.
// While its queue is full it stays.
func arrived(r *engine.Round, ns string, p *outbox.Message, a engine.Accepted, refused *task.Error) (stays bool) {
	switch {
	case p.From.Operation == task.ID{}:
		return false
	case refused != nil && refused.Code == task.CodeQueueFull:
		return true
	}
	s, ok := readStep(r.Tx(), ns, p.From.Operation)
	if !ok {
		schema.Must(fmt.Errorf("operation %s moves a task and has no step", p.From.Operation))
	}
	s.away--
	id := p.Spec.Moved.From
	switch {
	case a.Met, refused != nil && refused.Code == task.CodeConflict:
		comeBack(r, ns, id)
		s.arrived.skip(task.SkipUniqueKey, 1)
	case refused != nil:
		comeBack(r, ns, id)
		s.arrived.fail(id, refused.Message)
	default:
		s.arrived.Done++
		livesOn(r, ns, id, a.ID)
	}
	setStep(r, ns, p.From.Operation, s)
	return false
}

// livesOn notes as which task another lives on.
func livesOn(r *engine.Round, ns string, id, as task.ID) {
	x, err := r.Exec(ns, id)
	if err != nil || x.Reason != task.ReasonMoved { // its retention is over
		return
	}
	to := *x
	to.MovedTo = as
	r.Rewrite(ns, id, &to)
}

// comeBack lets a task wait again that no other queue takes. If another has its unique key by now, that one is newer, and it stays
// discarded.
func comeBack(r *engine.Round, ns string, id task.ID) {
	x, err := r.Exec(ns, id)
	if err != nil || x.Reason != task.ReasonMoved {
		return
	}
	if r.Queue(ns, x.Queue) == nil {
		return // deleted with all that was left in it
	}
	back := r.Change(ns, id, x)
	to := back.To
	if _, taken := unique.Taken(r, ns, x); taken {
		to.Reason = task.ReasonReplaced
		r.Rewrite(ns, id, to)
		return
	}
	to.EndedAt, to.KeptUntil, to.Reason = 0, 0, ""
	if to.RunAt > r.Now() {
		to.State = task.Scheduled
	} else {
		r.MakeReady(to)
	}
	back.Move()
}

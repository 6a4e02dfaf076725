package operation

import (
	"fmt"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/engine/unique"
	"github.com/pawlq/pawl/internal/task"
)

// A task never changes its queue or shard. To move one, the old task ends and a new one is sent to the other queue,
// both in one log entry. The message goes through the outbox even if the other queue is in the same shard, and takes
// effect there exactly once. If the other queue refuses it, the old task is restored.

// moveAway ends a waiting task and sends it to another queue. The new task has all that the producer specified, and the
// checkpoint; its attempts start over. The idempotency key stays with the old task: a repeat of the enqueue still finds
// it, and it names the new one.
func moveAway(r *engine.Round, ns string, c *StepCall, t Selected, x *schema.Exec) {
	e := r.Envelope(ns, t.ID)
	spec := task.Spec{Type: e.Type, Payload: e.Payload, ContentType: e.ContentType, Queue: c.ToQueue, Priority: x.Priority,
		MaxAttempts: x.MaxAttempts, Retry: e.Retry, Timeout: e.Timeout, Retention: x.Retention, Key: e.Key, Cost: x.Cost,
		Tags: e.Tags, Headers: e.Headers, Unique: x.Unique, Parent: e.Parent, Moved: &task.Moved{From: t.ID, Operation: c.Operation,
			Checkpoint: r.Checkpoint(ns, t.ID, x)}}
	if x.State != task.Ready {
		spec.RunAt = x.RunAt.Time()
	}
	if x.AwaitsStart() {
		spec.ExpiresIn, spec.ExpiresAlways = max(x.ExpiresAt.Sub(r.Now()), 1), x.ExpiresAlways
	}
	old := r.Change(ns, t.ID, x)
	old.Finish(task.Discarded, task.ReasonMoved)
	r.Send(ns, &schema.Message{Request: task.MoveRequest(t.ID, c.Operation), Spec: spec, From: schema.Origin{Operation: c.Operation}})
}

// admitMoved records the origin of a task that was moved here, and stores its checkpoint.
func admitMoved(r *engine.Round, n *engine.NewTask, e *schema.Envelope, x *schema.Exec) {
	if n.Moved == nil {
		return
	}
	e.MovedFrom, x.Operation = n.Moved.From, n.Moved.Operation
	if x.Checkpointed = len(n.Moved.Checkpoint) > 0; x.Checkpointed {
		r.Tx().Set(schema.IDKey(n.Namespace, schema.TableCheckpoint, n.ID), n.Moved.Checkpoint)
	}
}

// delivered records the outcome of a task that an operation sent to another queue. While its queue is full, the message stays.
func delivered(r *engine.Round, ns string, p *schema.Message, a engine.Accepted, refused *task.Error) (stays bool) {
	switch {
	case p.From.Operation == task.ID{} && p.Spec.Moved != nil:
		cameHome(r, ns, p.Spec.Moved.From, a, refused)
		return false
	case p.From.Operation == task.ID{}:
		return false
	case refused != nil && refused.Code == task.CodeQueueFull:
		return true
	}
	s, ok := readStep(r.Tx(), ns, p.From.Operation)
	if !ok {
		schema.Damaged(fmt.Errorf("operation %s moves a task and has no step", p.From.Operation))
	}
	s.away--
	switch {
	case a.KeyTaken, refused != nil && refused.Code == task.CodeConflict:
		restoreMoved(r, ns, p)
		s.arrived.skip(task.SkipUniqueKey, 1)
	case refused != nil:
		restoreMoved(r, ns, p)
		s.arrived.fail(p.Spec.Moved.From, refused.Message)
	default:
		s.arrived.Done++
		setMovedTo(r, ns, p.Spec.Moved.From, a.ID)
	}
	setStep(r, ns, p.From.Operation, s)
	return false
}

// setMovedTo records the new task of a moved one.
func setMovedTo(r *engine.Round, ns string, id, as task.ID) {
	x, err := r.Exec(ns, id)
	if err != nil || x.Reason != task.ReasonMoved { // its retention is over
		return
	}
	to := *x
	to.MovedTo = as
	r.Rewrite(ns, id, &to)
}

// restoreMoved restores a task that the other queue has refused. If another task holds its unique key by now, that one
// is newer, and the task stays discarded. If a task in another shard may hold it, only that shard can tell: a new task
// is sent there. So it is if this shard has no part of the queue any more.
func restoreMoved(r *engine.Round, ns string, p *schema.Message) {
	id := p.Spec.Moved.From
	x, err := r.Exec(ns, id)
	if err != nil || x.Reason != task.ReasonMoved {
		return
	}
	if q := r.Queue(ns, x.Queue); q == nil || unique.Elsewhere(q.Config(), x) {
		home := p.Spec
		home.Queue = x.Queue
		r.Send(ns, &schema.Message{Request: task.RequestOf(p.Request, 1), Spec: home})
		return
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

// cameHome records the outcome of a task that was sent back to its queue.
func cameHome(r *engine.Round, ns string, id task.ID, a engine.Accepted, refused *task.Error) {
	if refused == nil && !a.KeyTaken {
		setMovedTo(r, ns, id, a.ID)
		return
	}
	x, err := r.Exec(ns, id)
	if err != nil || x.Reason != task.ReasonMoved { // its retention is over
		return
	}
	to := *x
	to.Reason = task.ReasonReplaced
	r.Rewrite(ns, id, &to)
}

package engine

import (
	"github.com/pawlq/pawl/internal/engine/fingerprint"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/engine/unique"
	"github.com/pawlq/pawl/internal/task"
)

// Finish moves the task to a final state and notifies its group.
func (c *Change) Finish(s task.State, reason string) {
	c.finishSilently(s, reason)
	c.notifyEnd()
}

// finishSilently is Finish without notifying the task's group, which may enqueue a task in response.
func (c *Change) finishSilently(s task.State, reason string) {
	r, to := c.r, c.To
	to.State, to.Reason, to.EndedAt = s, reason, r.now
	keep := c.q.config.Settings.Retention.Of(s)
	if to.Retention != nil {
		keep = *to.Retention
	}
	if reason == task.ReasonMoved { // a repeat of its enqueue finds where it went
		keep = max(keep, task.MessageWindow)
	}
	to.KeptUntil = keptUntil(r.now, keep)
	if c.From.Checkpointed && s == task.Succeeded {
		r.tx.Delete(schema.IDKey(c.ns, schema.TableCheckpoint, c.id))
		to.Checkpointed = false
	}
	to.Links = to.Links.NextRevision()
	c.Move()
	r.Ended = append(r.Ended, Ended{c.id, s})
}

// notifyEnd notifies the task's group that the task has ended without success. Success is reported by Ack, which also passes the result.
func (c *Change) notifyEnd() {
	if c.To.Links.Member() && c.To.State != task.Succeeded {
		c.notifyLinked(schema.Result{})
	}
}

// notifyLinked notifies policies that a task with links has ended or was replayed.
func (c *Change) notifyLinked(result schema.Result) {
	for _, ended := range c.r.l.points.ended {
		ended(c.r, c.ns, c.id, c.To, result)
	}
}

// makeDead makes the task a dead letter.
func (c *Change) makeDead(reason string, f schema.Failure) {
	c.setFingerprint(f)
	c.Finish(task.Dead, reason)
	c.r.Dead = append(c.r.Dead, DeadLetter{Namespace: c.ns, ID: c.id, Exec: *c.To, Failure: f, Headers: c.r.Envelope(c.ns, c.id).Headers})
}

// setFingerprint sets the fingerprint of a task that dies with a failure. If f is empty, it uses the task's last recorded failure.
func (c *Change) setFingerprint(f schema.Failure) {
	if f == (schema.Failure{}) {
		f = schema.LastFailure(schema.ReadAttempts(c.r.tx, c.ns, c.id))
	}
	c.To.Fingerprint = fingerprint.Of(c.To.Type, fingerprint.Normalize(f.Message))
}

// requeue moves a claimed task back to waiting for another run. If another task is next to hold its unique key, the
// task is discarded instead.
func (c *Change) requeue() {
	if unique.HasNext(c.r, c.ns, c.From) {
		c.Finish(task.Discarded, task.ReasonReplaced)
		return
	}
	c.Move()
}

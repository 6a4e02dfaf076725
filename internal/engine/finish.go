package engine

import (
	"github.com/pawlq/pawl/internal/engine/fingerprint"
	"github.com/pawlq/pawl/internal/engine/outbox"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/engine/unique"
	"github.com/pawlq/pawl/internal/task"
)

// Finish brings the task to an end state, and lets its group know.
func (c *Change) Finish(s task.State, reason string) {
	c.finishUntold(s, reason)
	c.tellEnd()
}

// finishUntold is Finish before the task's group hears of it, which may enqueue a task then.
func (c *Change) finishUntold(s task.State, reason string) {
	r, to := c.r, c.To
	to.State, to.Reason, to.EndedAt = s, reason, r.now
	keep := c.q.config.Settings.Retention.Of(s)
	if to.Retention != nil {
		keep = *to.Retention
	}
	if reason == task.ReasonMoved { // it may have to come back
		keep = max(keep, outbox.Window)
	}
	to.KeptUntil = keptUntil(r.now, keep)
	if c.From.Checkpointed && s == task.Succeeded {
		r.tx.Delete(schema.IDKey(c.ns, schema.TableCheckpoint, c.id))
		to.Checkpointed = false
	}
	to.Links = to.Links.Turned()
	c.Move()
	r.Ended = append(r.Ended, Ended{c.id, s})
}

// tellEnd lets the group of the task know that it has ended. Ack tells of success, with what follows.
func (c *Change) tellEnd() {
	if c.To.Links.Member() && c.To.State != task.Succeeded {
		c.tellLinked(schema.Result{})
	}
}

// tellLinked lets policies act on the end of a task with links, or on its new life.
func (c *Change) tellLinked(result schema.Result) {
	for _, ended := range c.r.l.points.ended {
		ended(c.r, c.ns, c.id, c.To, result)
	}
}

// bury makes the task a dead letter.
func (c *Change) bury(reason string, f schema.Failure) {
	c.mark(f)
	c.Finish(task.Dead, reason)
	c.r.Dead = append(c.r.Dead, DeadLetter{Namespace: c.ns, ID: c.id, Exec: *c.To, Failure: f, Headers: c.r.Envelope(c.ns, c.id).Headers})
}

// mark gives a task that dies with a failure its fingerprint. If nothing is said of this failure, an earlier one tells.
func (c *Change) mark(f schema.Failure) {
	if f == (schema.Failure{}) {
		f = schema.LastFailure(schema.ReadAttempts(c.r.tx, c.ns, c.id))
	}
	c.To.Print = fingerprint.Of(c.To.Type, fingerprint.Normalise(f.Message))
}

// waitAgain moves a claimed task to where it waits for another run. If another is next to hold its unique key, it is discarded
// instead.
func (c *Change) waitAgain() {
	if unique.HasNext(c.r, c.ns, c.From) {
		c.Finish(task.Discarded, task.ReasonReplaced)
		return
	}
	c.Move()
}

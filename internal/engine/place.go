package engine

import (
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// leave removes the task from the counters, lanes and deadlines of state x.
func (c *Change) leave(x *schema.Exec) {
	r := c.r
	c.count(x, -1)
	switch {
	case x.Parked() || x.State == task.Scheduled || x.State == task.Retrying:
		r.tx.Delete(schema.WaitKey(c.ns, c.q.name, x.State, x.RunAt, c.id))
	case x.State == task.Ready:
		r.lanes.Leave(c.q.lanes, x)
	case x.State == task.Dead || x.State == task.Poisoned:
		r.tx.Delete(schema.DeadKey(c.ns, c.q.name, x.State, x.EndedAt, c.id))
		if x.KeptUntil <= r.now {
			r.tx.Delete(schema.ArchiveKey(c.ns, x.EndedAt, c.id))
		}
	}
	if at, kind := x.Deadline(); kind != 0 {
		r.endTaskDeadline(at, kind, c.ns, c.id)
	}
	if x.AwaitsStart() {
		r.endTaskDeadline(x.ExpiresAt, schema.OnExpiry, c.ns, c.id)
	}
}

// enter adds the task to the counters, lanes and deadlines of state x.
func (c *Change) enter(x *schema.Exec) {
	r := c.r
	c.count(x, +1)
	switch {
	case x.Parked() || x.State == task.Scheduled || x.State == task.Retrying:
		r.tx.Set(schema.WaitKey(c.ns, c.q.name, x.State, x.RunAt, c.id), nil)
	case x.State == task.Ready:
		r.lanes.Enter(c.q.lanes, c.id, x)
		// tasks often come in bulk, and one wake-up serves them all
		if n := len(r.Woken); n == 0 || r.Woken[n-1] != (Woken{c.ns, c.q.name}) {
			c.q.in(r).Wake()
		}
	case x.State == task.Dead || x.State == task.Poisoned:
		r.tx.Set(schema.DeadKey(c.ns, c.q.name, x.State, x.EndedAt, c.id), x.EncodeDead())
	}
	if at, kind := x.Deadline(); kind != 0 {
		r.setTaskDeadline(at, kind, c.ns, c.id)
	}
	if x.AwaitsStart() {
		r.setTaskDeadline(x.ExpiresAt, schema.OnExpiry, c.ns, c.id)
	}
}

func (c *Change) count(x *schema.Exec, n int64) {
	q := c.q
	if of := q.counts.Of(x.State, x.Priority); of != nil {
		*of += n
		if x.Parked() {
			q.counts.Parked += n
			if x.Role != schema.RoleNext {
				q.counts.Behind += n
			}
		}
		if !x.State.Ended() {
			q.counts.Bytes += n * x.Size
			q.space.Count(x, n)
		}
		q.in(c.r).touch()
	}
}

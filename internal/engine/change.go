package engine

import (
	"fmt"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/engine/unique"
	"github.com/pawlq/pawl/internal/task"
)

// Change is one step in a task's life: its state before and after. A verb starts a change, edits To, and completes it
// with Move or with a more specific method: Finish, makeDead, retry, requeue.
type Change struct {
	r  *Round
	ns string
	id task.ID
	q  *Queue

	From *schema.Exec // must not be changed; nil for a new task
	To   *schema.Exec
}

// Change starts a change of a task whose current state is from.
func (r *Round) Change(ns string, id task.ID, from *schema.Exec) Change {
	to := *from
	return Change{r: r, ns: ns, id: id, q: r.QueueOf(ns, from), From: from, To: &to}
}

// changeOf starts a change of another task of the same queue. The task must exist.
func (c *Change) changeOf(id task.ID) Change {
	from := c.r.execOf(c.ns, id)
	to := *from
	return Change{r: c.r, ns: c.ns, id: id, q: c.q, From: from, To: &to}
}

// Move moves the task from one state to another. It keeps counters, lanes and deadlines in step with the row, so that no verb has to.
func (c *Change) Move() {
	r, q, from, to := c.r, c.q, c.From, c.To
	if from == nil {
		r.tx.Set(schema.ListedKey(c.ns, q.name, c.id), nil)
	} else if !from.State.CanBecome(to.State) {
		panic(fmt.Sprintf("task %s: %s can't become %s", c.id, from.State, to.State))
	}
	var newHolder, next task.ID
	if to.Unique != nil {
		newHolder = unique.Keep(r, c.ns, c.id, from, to)
	}
	if to.Order != 0 || q.strict() {
		next = q.order.Keep(r, c.id, q.strict(), from, to)
	}
	if from != nil {
		c.leave(from)
		if from.State == task.Claimed && to.State != task.Claimed {
			c.endClaim()
		}
	}
	if to.State == task.Claimed && from.State != task.Claimed {
		c.beginClaim()
	}
	c.enter(to)
	if from != nil && from.State == task.Ready && !from.Parked() {
		q.lanes.ForgetIdle(from.Key)
	}
	c.write()
	if newHolder != (task.ID{}) {
		c.makeHolder(newHolder)
	}
	if next != (task.ID{}) {
		c.makeFirst(next)
	}
}

// write writes the task's row, after its counters, lanes and deadlines are up to date.
func (c *Change) write() {
	r := c.r
	if c.id == r.operated.id {
		c.To.Operation = r.operated.by
	}
	if zs := r.zonesOf(c.ns); zs.Note(r.tx, c.id, c.From, c.To) {
		r.zones = append(r.zones, zs)
	}
	r.setExec(c.ns, c.id, c.To)
	r.l.hot.Keep(c.ns, c.id, c.To, c.q.counts.Ready[c.To.Priority-task.High])
	c.noteTransition()
	if dies(c.From, c.To) {
		r.deaths++
	}
}

// makeHolder makes the next task the holder of its unique key. The key's row names it already.
func (c *Change) makeHolder(id task.ID) {
	holder := c.changeOf(id)
	holder.To.Role = schema.RoleHolder
	holder.Move()
}

// makeFirst puts a ready task into its lane once it is the first of its key.
func (c *Change) makeFirst(id task.ID) {
	next := c.changeOf(id)
	next.To.Behind = false
	c.r.MakeReady(next.To)
	next.Move()
}

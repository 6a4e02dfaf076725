package engine

import (
	"fmt"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/engine/unique"
	"github.com/pawlq/pawl/internal/task"
)

// Change is a step of a task's life: the task as it was and as it shall be. A verb begins one, says in To what changes, and ends it by
// Move, or by what says more: Finish, bury, retry, waitAgain.
type Change struct {
	r  *Round
	ns string
	id task.ID
	q  *Queue

	From *schema.Exec // must not be changed; nil for a new task
	To   *schema.Exec
}

// Change begins a step of a task that is as from says.
func (r *Round) Change(ns string, id task.ID, from *schema.Exec) Change {
	to := *from
	return Change{r: r, ns: ns, id: id, q: r.QueueOf(ns, from), From: from, To: &to}
}

// another begins a step of a task of the same queue, which must be there.
func (c *Change) another(id task.ID) Change {
	from := c.r.execOf(c.ns, id)
	to := *from
	return Change{r: c.r, ns: c.ns, id: id, q: c.q, From: from, To: &to}
}

// Move takes the task from one place in its life to another: it keeps counters, lanes and deadlines in step with the row,
// so that no verb has to.
func (c *Change) Move() {
	r, q, from, to := c.r, c.q, c.From, c.To
	if from == nil {
		r.tx.Set(schema.ListedKey(c.ns, q.name, c.id), nil)
	} else if !from.State.CanBecome(to.State) {
		panic(fmt.Sprintf("task %s: %s can't become %s", c.id, from.State, to.State))
	}
	var heir, next task.ID
	if to.Unique != nil {
		heir = unique.Pass(r, c.ns, c.id, from, to)
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
	if heir != (task.ID{}) {
		c.inherit(heir)
	}
	if next != (task.ID{}) {
		c.comeFirst(next)
	}
}

// write writes the task's row, when its place is right.
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

// inherit makes the task that was next the holder of its unique key. The key's row says so already.
func (c *Change) inherit(id task.ID) {
	heir := c.another(id)
	heir.To.Role = schema.RoleHolder
	heir.Move()
}

// comeFirst brings a ready task into its lane that has become the first of its key.
func (c *Change) comeFirst(id task.ID) {
	next := c.another(id)
	next.To.Behind = false
	c.r.MakeReady(next.To)
	next.Move()
}

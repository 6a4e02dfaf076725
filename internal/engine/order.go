package engine

import (
	"slices"

	"github.com/pawlq/pawl/internal/engine/lanes"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// In a queue with a strict order of keys, a task of a key runs when all that were enqueued before it with the same key have ended,
// whatever they went through: retries, snoozes, lost leases.
//
// Each such task has a place (Exec.Order) from when it is enqueued, or replayed, until it ends. The first of a key lies in its lane when
// it is ready; those behind it wait in a table of their own and take no memory, and the end of the first brings the next one into its
// lane. So a million keys cost what their lanes cost, and a claim never looks at a task that may not run. That the first does not run
// beside others, of the same run or from before the setting, the limit on its key sees to: see whyHeld.

// ordered says whether new tasks of the queue have a place in the order of their keys.
func (q *Queue) ordered() bool { return q.config.Settings.KeyOrder == task.KeyOrderStrict }

// keepOrder keeps the order of a task's key in step with the task, as part of a move. It returns the task that comes first from now on
// and is to be moved into its lane after this one, if any.
func (r *Round) keepOrder(ns string, id task.ID, q *Queue, from, to *schema.Exec) (next task.ID) {
	begins := from == nil || from.State.Ended() && !to.State.Ended()
	switch {
	case begins && q.ordered() && to.Key != "":
		r.joinOrder(ns, id, q, to)
	case to.Order == 0:
	case to.State.Ended():
		next = r.leaveOrder(ns, id, q, to)
	case to.State == task.Ready && from.State != task.Ready:
		to.Behind = r.lineOf(q, to.Key).first.ID != id
		if from.State == task.Claimed && !to.Behind {
			to.Seq = r.nextSeq() // its key goes behind others that wait
		}
	case to.State != task.Ready:
		to.Behind = false
	}
	return next
}

// joinOrder puts a task at the end of its key's order.
func (r *Round) joinOrder(ns string, id task.ID, q *Queue, to *schema.Exec) {
	to.Order = r.nextSeq()
	l := r.lineOf(q, to.Key)
	if l.first.Order == 0 {
		r.setFirst(ns, q, to.Key, l, schema.FirstRow{Order: to.Order, ID: id, Alone: true})
		return
	}
	if l.first.Alone {
		l.first.Alone = false
		r.setFirst(ns, q, to.Key, l, l.first)
	}
	l.join(place{to.Order, id})
	r.tx.Set(schema.OrderKey(ns, q.name, to.Key, to.Order), id[:])
	to.Behind = to.State == task.Ready
}

// leaveOrder takes a task that ends out of its key's order.
func (r *Round) leaveOrder(ns string, id task.ID, q *Queue, to *schema.Exec) (next task.ID) {
	order := to.Order
	to.Order, to.Behind = 0, false
	l := r.lineOf(q, to.Key)
	if l.first.ID != id {
		l.leave(order)
		r.tx.Delete(schema.OrderKey(ns, q.name, to.Key, order))
		return next
	}
	then := r.second(q, to.Key, l)
	if then.order == 0 {
		r.tx.Delete(schema.FirstKey(ns, q.name, to.Key))
		r.forgetLine(q, to.Key)
		return next
	}
	l.next = l.next[1:]
	r.tx.Delete(schema.OrderKey(ns, q.name, to.Key, then.order))
	r.setFirst(ns, q, to.Key, l, schema.FirstRow{Order: then.order, ID: then.id, Alone: l.whole && len(l.next) == 0})
	if r.execOf(ns, then.id).Behind {
		next = then.id
	}
	return next
}

func (r *Round) setFirst(ns string, q *Queue, key string, l *line, f schema.FirstRow) {
	l.first = f
	r.tx.Set(schema.FirstKey(ns, q.name, key), f.Encode())
}

// comeFirst brings a ready task into its lane that has become the first of its key.
func (r *Round) comeFirst(ns string, id task.ID, q *Queue) {
	from := r.execOf(ns, id)
	to := *from
	to.Behind = false
	r.MakeReady(&to)
	r.Move(ns, id, q, from, &to)
}

// claimRun claims the tasks that come behind one that the same call has just claimed, in order: up to n, until one may not run or does
// not fit into so many bytes.
func (r *Round) claimRun(q *Queue, c *ClaimRequest, behind *schema.Exec, n, room int) (got []Claimed) {
	var ids []task.ID
	schema.ScanOrder(r.tx, q.ns, q.name, behind.Key, behind.Order, func(_ uint64, id task.ID) bool {
		ids = append(ids, id)
		return len(ids) < n
	})
	for _, id := range ids {
		x, err := r.Exec(q.ns, id)
		schema.Must(err)
		if !r.mayFollow(q, c, x) {
			break
		}
		e, checkpoint := r.Envelope(q.ns, id), r.Checkpoint(q.ns, id, x)
		if e.Weight()+len(checkpoint) > room {
			break
		}
		t := r.claimed(q, e, r.claim(q, c, e, x), checkpoint)
		room -= t.Weight()
		got = append(got, t)
	}
	return got
}

// mayFollow says whether a task may run beside those before it of the same run: nothing but they holds it back.
func (r *Round) mayFollow(q *Queue, c *ClaimRequest, x *schema.Exec) bool {
	if !x.Behind || x.Role == schema.RoleNext || len(c.Types) > 0 && !slices.Contains(c.Types, x.Type) {
		return false
	}
	f := q.lanes.Flow(x.Key, r.now)
	held := q.Held(x.Key, f.Use.Count(), r.now)
	return q.mayRun(r.now) && !q.lanes.Holds(x.Type) && (held == 0 || held == lanes.HeldByOrder)
}

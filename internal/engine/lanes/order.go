package lanes

import (
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Each task of a queue with strict order has a place (Exec.Order) from when it is enqueued, or replayed, until it ends.
// The first task of a key is in its lane when it is ready; those after it wait in a table of their own and take no
// memory, and the end of the first puts the next one into its lane. So a million keys cost no more than their lanes,
// and a claim never looks at a task that must not run. The limit on its key (HeldByOrder) keeps the first from
// running alongside others that were claimed with it in one run, or before the setting changed.

// OrderRound is the part of engine.Round that an OrderSet needs.
type OrderRound interface {
	Tx() *store.Tx
	Exec(ns string, id task.ID) (*schema.Exec, error)
	// NextSeq returns the next sequence number: the place of a task that becomes ready now.
	NextSeq() uint64
}

// Keep keeps the order of a task's key in step with the task, as part of a move. Strict is true if new tasks of the
// queue get a place. It returns the task, if any, that has become the first of the key and must be moved into its lane
// after this move.
func (s *OrderSet) Keep(r OrderRound, id task.ID, strict bool, from, to *schema.Exec) (next task.ID) {
	begins := from == nil || from.State.Ended() && !to.State.Ended()
	switch {
	case begins && strict && to.Key != "":
		s.join(r, id, to)
	case to.Order == 0:
	case to.State.Ended():
		next = s.leave(r, id, to)
	case to.State == task.Ready && from.State != task.Ready:
		to.Behind = s.lineOf(r.Tx(), to.Key).first.ID != id
		to.Seq = r.NextSeq() // its key queues up behind others that wait
	case to.State != task.Ready:
		to.Behind = false
	}
	return next
}

// join appends a task to its key's order.
func (s *OrderSet) join(r OrderRound, id task.ID, to *schema.Exec) {
	to.Order = r.NextSeq()
	l := s.lineOf(r.Tx(), to.Key)
	if l.first.Order == 0 {
		s.setFirst(r.Tx(), to.Key, l, schema.FirstRow{Order: to.Order, ID: id, Alone: true})
		return
	}
	if l.first.Alone {
		l.first.Alone = false
		s.setFirst(r.Tx(), to.Key, l, l.first)
	}
	l.join(place{to.Order, id})
	r.Tx().Set(schema.OrderKey(s.ns, s.queue, to.Key, to.Order), id[:])
	to.Behind = to.State == task.Ready
}

// leave removes a task that ends from its key's order.
func (s *OrderSet) leave(r OrderRound, id task.ID, to *schema.Exec) (next task.ID) {
	order := to.Order
	to.Order, to.Behind = 0, false
	l := s.lineOf(r.Tx(), to.Key)
	if l.first.ID != id {
		l.leave(order)
		r.Tx().Delete(schema.OrderKey(s.ns, s.queue, to.Key, order))
		return next
	}
	then := s.second(r.Tx(), to.Key, l)
	if then.order == 0 {
		r.Tx().Delete(schema.FirstKey(s.ns, s.queue, to.Key))
		s.forget(to.Key)
		return next
	}
	l.next = l.next[1:]
	r.Tx().Delete(schema.OrderKey(s.ns, s.queue, to.Key, then.order))
	s.setFirst(r.Tx(), to.Key, l, schema.FirstRow{Order: then.order, ID: then.id, Alone: l.whole && len(l.next) == 0})
	x := schema.Must(r.Exec(s.ns, then.id))
	if x.Behind {
		next = then.id
	}
	return next
}

func (s *OrderSet) setFirst(tx *store.Tx, key string, l *line, f schema.FirstRow) {
	l.first = f
	tx.Set(schema.FirstKey(s.ns, s.queue, key), f.Encode())
}

// Behind returns the task behind the first of a key, if id is the first; false: it is not, or there is none behind it.
func (s *OrderSet) Behind(tx *store.Tx, key string, id task.ID) (task.ID, bool) {
	l := s.lineOf(tx, key)
	p := s.second(tx, key, l)
	return p.id, p.order != 0 && l.first.ID == id
}

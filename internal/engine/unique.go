package engine

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// A unique key of a queue is held by one task, from its enqueue until it leaves its set of states. Its row says by which, and
// which task waits to hold it next. It changes in the entry that moves the task, so it can't outlive it: Round.move calls passKey,
// and only an enqueue reads it beside that. Tasks without a unique key know nothing of it.
//
// A next task exists only while the holder is claimed. It lies in no lane, so that it can't run; when the holder's claim ends, it
// becomes the holder: its data is newer, so a holder that would wait for another run is discarded instead (waitAgain).

// Role is a task's part in its unique key.
type Role uint8

// The values are stored.
const (
	NoRole Role = iota // it has no unique key, or has let go of it
	Holder             // the key is its own
	Next               // it waits for the end of the holder's claim
)

// parked says whether the task would be in a lane if it did not wait for the holder of its unique key.
func (x *Exec) parked() bool { return x.State == task.Ready && x.Role == Next }

// uniqueRow says whose a unique key is.
type uniqueRow struct {
	holder task.ID
	next   task.ID // zero: none
	slot   int     // of the holder: where it lies says who is to be asked for the key when slots have moved
}

func (u uniqueRow) encode() []byte {
	r := newRow(40)
	r.bytes(1, u.holder[:])
	r.id(2, u.next)
	r.num(3, uint64(u.slot)) // #nosec G115 -- below task.SlotCount
	return r
}

func decodeUnique(row []byte) (u uniqueRow, err error) {
	err = decode(row, func(tag protowire.Number, v uint64) {
		if tag == 3 {
			u.slot = int(v % task.SlotCount)
		}
	}, func(tag protowire.Number, b []byte) {
		switch tag {
		case 1:
			copy(u.holder[:], b)
		case 2:
			copy(u.next[:], b)
		}
	})
	return u, err
}

func readUnique(from store.Reader, ns, queue, key string) (u uniqueRow, ok bool) {
	row, ok := from.Get(uniqueKey(ns, queue, key))
	if ok {
		var err error
		u, err = decodeUnique(row)
		corrupt(err)
	}
	return u, ok
}

// meeting is what a new task finds that asks for a unique key.
type meeting struct {
	taken bool    // somebody holds the key
	role  Role    // that the new task will have
	old   task.ID // the task that waits and makes room for it; zero: none
	exec  *Exec   // of old, as it is
}

// meet looks whose the unique key of a new task is. If the task is not to be made, that is the answer: a duplicate, or a refusal.
func (r *Round) meet(n *NewTask) (meeting, Accepted, error) {
	u, taken := readUnique(r.tx, n.Namespace, n.Queue, n.Unique.Key)
	if !taken {
		return meeting{role: Holder}, Accepted{}, nil
	}
	x := r.execOf(n.Namespace, u.holder)
	m := meeting{taken: true, role: Holder}
	switch {
	case x.State.Waiting():
		m.old, m.exec = u.holder, x
	case u.next != (task.ID{}):
		m.role, m.old, m.exec = Next, u.next, r.execOf(n.Namespace, u.next)
	default:
		m.role = Next
	}
	switch mode := n.Unique.OnConflict; {
	case mode == task.Reject:
		return m, Accepted{}, &task.Error{Code: task.CodeConflict, Field: "unique.key",
			Message: fmt.Sprintf("unique.key %q of queue %q belongs to task %s, which is %s", n.Unique.Key, n.Queue, u.holder, x.State)}
	case mode == task.KeepLast && !x.State.Ended(), mode == task.Replace && m.exec != nil:
		return m, Accepted{}, nil
	}
	return m, Accepted{ID: u.holder, State: x.State, CreatedAt: x.CreatedAt, Duplicate: true, Met: true}, nil
}

// takePlace gives a new task what it gets by a meeting: its role, and the place in line of the task that makes room for it.
func (m *meeting) takePlace(x *Exec) {
	x.Role = m.role
	if m.exec != nil && m.exec.State == task.Ready && x.State == task.Ready {
		x.Seq = m.exec.Seq
	}
}

// replaced is how many waiting tasks go when the new one comes.
func (m *meeting) replaced() int64 {
	if m.exec != nil {
		return 1
	}
	return 0
}

// replace discards the task that makes room. Its group must not hear of it before the new task is there: it may enqueue one that
// asks for the same key, which would be free. See tellReplaced.
func (r *Round) replace(ns string, q *queue, m *meeting) {
	if m.exec != nil {
		to := *m.exec
		r.finishUntold(ns, m.old, q, m.exec, &to, task.Discarded, task.ReasonReplaced)
		m.exec = &to
	}
}

// tellReplaced lets the group of the task that made room know.
func (r *Round) tellReplaced(ns string, m *meeting) {
	if m.exec != nil {
		r.tellEnd(ns, m.old, m.exec)
	}
}

// waitAgain moves a claimed task to where it waits for another run. If another is next to hold its unique key, it is discarded
// instead.
func (r *Round) waitAgain(ns string, id task.ID, q *queue, from, to *Exec) {
	if from.Role == Holder && r.uniqueOf(ns, from).next != (task.ID{}) {
		r.finish(ns, id, q, from, to, task.Discarded, task.ReasonReplaced)
		return
	}
	r.move(ns, id, q, from, to)
}

// passKey keeps the row of a task's unique key in step with the task, as part of a move. It returns the task that holds the key
// from now on and is to be moved after this one, if any.
func (r *Round) passKey(ns string, id task.ID, from, to *Exec) (heir task.ID) {
	switch {
	case from == nil || from.State.Ended() && !to.State.Ended():
		r.takeKey(ns, id, from, to)
		return heir
	case to.Role == Next && to.State.Ended():
		to.Role = NoRole
		u := r.uniqueOf(ns, to)
		u.next = task.ID{}
		r.setUnique(ns, to, u)
		return heir
	case to.Role != Holder || from.Role != Holder || !to.State.Ended():
		return heir
	}
	if from.State == task.Claimed {
		heir = r.uniqueOf(ns, to).next
	}
	switch {
	case heir != (task.ID{}):
		to.Role = NoRole
		r.setUnique(ns, to, uniqueRow{holder: heir, slot: r.execOf(ns, heir).slot()})
	case !to.Unique.States.Has(to.State) || to.Reason == task.ReasonReplaced, to.Reason == task.ReasonMoved:
		to.Role = NoRole
		r.tx.Delete(uniqueKey(ns, to.Queue, to.Unique.Key))
	}
	return heir
}

// takeKey is for a task that asks for its key: a new one, in the role that it was given, or one that is replayed, whose key is
// its own or free.
func (r *Round) takeKey(ns string, id task.ID, from, to *Exec) {
	switch {
	case from == nil && to.Role == Next:
		u := r.uniqueOf(ns, to)
		u.next = id
		r.setUnique(ns, to, u)
	case to.Role == NoRole || from == nil:
		to.Role = Holder
		r.setUnique(ns, to, uniqueRow{holder: id, slot: to.slot()})
	}
}

// inherit makes the task that was next the holder of its key. The key's row says so already.
func (r *Round) inherit(ns string, id task.ID, q *queue) {
	from := r.execOf(ns, id)
	to := *from
	to.Role = Holder
	r.move(ns, id, q, from, &to)
}

// keyTaken says who else holds the unique key of a task that has let go of it.
func (r *Round) keyTaken(ns string, x *Exec) (by task.ID, taken bool) {
	if x.Unique == nil || x.Role == Holder {
		return by, false
	}
	u, taken := readUnique(r.tx, ns, x.Queue, x.Unique.Key)
	return u.holder, taken
}

// uniqueOf is the row of a key that a task has a part in.
func (r *Round) uniqueOf(ns string, x *Exec) uniqueRow {
	u, ok := readUnique(r.tx, ns, x.Queue, x.Unique.Key)
	if !ok {
		corrupt(fmt.Errorf("unique key %q of queue %q has no row", x.Unique.Key, x.Queue))
	}
	return u
}

// execOf is where a task is that a unique key's row names.
func (r *Round) execOf(ns string, id task.ID) *Exec {
	x, err := r.exec(ns, id)
	corrupt(err)
	return x
}

func (r *Round) setUnique(ns string, x *Exec, u uniqueRow) {
	r.tx.Set(uniqueKey(ns, x.Queue, x.Unique.Key), u.encode())
}

// slot is that of a task with a unique key in its queue.
func (x *Exec) slot() int {
	slot, _ := (&task.Spec{Key: x.Key, Unique: x.Unique}).Slot()
	return slot
}

// HoldsUnique says whether a unique key of a queue is held by a task of one of the slots.
func HoldsUnique(from store.Reader, ns, name string, slots task.SlotSet) (held bool, err error) {
	keys := uniqueKey(ns, name, "")
	from.Scan(keys, after(keys), func(_, v []byte) bool {
		var u uniqueRow
		u, err = decodeUnique(v)
		held = err == nil && slots.Has(u.slot)
		return err == nil && !held
	})
	return held, err
}

// noteUnique notes a task's part in its unique key.
func (c *checker) noteUnique(id task.ID, x *Exec) {
	if x.Unique == nil {
		if x.Role != NoRole {
			c.find("task %s has role %d in no unique key", id, x.Role)
		}
		return
	}
	key := string(uniqueKey(c.ns, x.Queue, x.Unique.Key))
	u := c.uniques[key]
	switch {
	case x.Role == NoRole && !x.State.Ended():
		c.find("task %s is %s and has no part in its unique key", id, x.State)
	case x.Role == Holder && !x.Unique.States.Has(x.State):
		c.find("task %s is %s and holds its unique key", id, x.State)
	case x.Role == Next && x.State != task.Ready && x.State != task.Scheduled:
		c.find("task %s is %s and next to hold its unique key", id, x.State)
	case x.Role == Holder && u.holder != (task.ID{}), x.Role == Next && u.next != (task.ID{}):
		c.find("task %s shares a role in its unique key %q", id, x.Unique.Key)
	case x.Role == Holder:
		u.holder, u.slot = id, x.slot()
	case x.Role == Next:
		u.next = id
	}
	if x.Role != NoRole {
		c.uniques[key] = u
	}
}

// expectUnique notes the rows that must be there because of unique keys.
func (c *checker) expectUnique() {
	for key, u := range c.uniques {
		holder := c.tasks[u.holder]
		if holder == nil || u.next != (task.ID{}) && holder.State != task.Claimed {
			c.find("unique key %q: task %s waits for a task that does not run", key, u.next)
		}
		c.want[key] = u.encode()
	}
}

package engine

import (
	"fmt"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// A unique key of a queue is held by one task, from its enqueue until it leaves its set of states. Its row says by which, and
// which task waits to hold it next. It changes in the entry that moves the task, so it can't outlive it: Round.move calls passKey,
// and only an enqueue reads it beside that. Tasks without a unique key know nothing of it.
//
// A next task exists only while the holder is claimed. It lies in no lane, so that it can't run; when the holder's claim ends, it
// becomes the holder: its data is newer, so a holder that would wait for another run is discarded instead (waitAgain).

// meeting is what a new task finds that asks for a unique key.
type meeting struct {
	taken bool         // somebody holds the key
	role  schema.Role  // that the new task will have
	old   task.ID      // the task that waits and makes room for it; zero: none
	exec  *schema.Exec // of old, as it is
}

// meet looks whose the unique key of a new task is. If the task is not to be made, that is the answer: a duplicate, or a refusal.
func (r *Round) meet(n *NewTask) (meeting, Accepted, error) {
	u, taken := schema.ReadUnique(r.tx, n.Namespace, n.Queue, n.Unique.Key)
	if !taken {
		return meeting{role: schema.RoleHolder}, Accepted{}, nil
	}
	x := r.execOf(n.Namespace, u.Holder)
	m := meeting{taken: true, role: schema.RoleHolder}
	switch {
	case x.State.Waiting():
		m.old, m.exec = u.Holder, x
	case u.Next != (task.ID{}):
		m.role, m.old, m.exec = schema.RoleNext, u.Next, r.execOf(n.Namespace, u.Next)
	default:
		m.role = schema.RoleNext
	}
	switch mode := n.Unique.OnConflict; {
	case mode == task.Reject:
		return m, Accepted{}, &task.Error{Code: task.CodeConflict, Field: "unique.key",
			Message: fmt.Sprintf("unique.key %q of queue %q belongs to task %s, which is %s", n.Unique.Key, n.Queue, u.Holder, x.State)}
	case mode == task.KeepLast && !x.State.Ended(), mode == task.Replace && m.exec != nil:
		return m, Accepted{}, nil
	}
	return m, Accepted{ID: u.Holder, State: x.State, CreatedAt: x.CreatedAt, Duplicate: true, Met: true}, nil
}

// takePlace gives a new task what it gets by a meeting: its role, and the place in line of the task that makes room for it.
func (m *meeting) takePlace(x *schema.Exec) {
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
func (r *Round) replace(ns string, q *Queue, m *meeting) {
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
func (r *Round) waitAgain(ns string, id task.ID, q *Queue, from, to *schema.Exec) {
	if from.Role == schema.RoleHolder && r.uniqueOf(ns, from).Next != (task.ID{}) {
		r.Finish(ns, id, q, from, to, task.Discarded, task.ReasonReplaced)
		return
	}
	r.Move(ns, id, q, from, to)
}

// passKey keeps the row of a task's unique key in step with the task, as part of a move. It returns the task that holds the key
// from now on and is to be moved after this one, if any.
func (r *Round) passKey(ns string, id task.ID, from, to *schema.Exec) (heir task.ID) {
	switch {
	case from == nil || from.State.Ended() && !to.State.Ended():
		r.takeKey(ns, id, from, to)
		return heir
	case to.Role == schema.RoleNext && to.State.Ended():
		to.Role = schema.RoleNone
		u := r.uniqueOf(ns, to)
		u.Next = task.ID{}
		r.setUnique(ns, to, u)
		return heir
	case to.Role != schema.RoleHolder || from.Role != schema.RoleHolder || !to.State.Ended():
		return heir
	}
	if from.State == task.Claimed {
		heir = r.uniqueOf(ns, to).Next
	}
	switch {
	case heir != (task.ID{}):
		to.Role = schema.RoleNone
		r.setUnique(ns, to, schema.UniqueRow{Holder: heir, Slot: r.execOf(ns, heir).Slot()})
	case !to.Unique.States.Has(to.State) || to.Reason == task.ReasonReplaced, to.Reason == task.ReasonMoved:
		to.Role = schema.RoleNone
		r.tx.Delete(schema.UniqueKey(ns, to.Queue, to.Unique.Key))
	}
	return heir
}

// takeKey is for a task that asks for its key: a new one, in the role that it was given, or one that is replayed, whose key is
// its own or free.
func (r *Round) takeKey(ns string, id task.ID, from, to *schema.Exec) {
	switch {
	case from == nil && to.Role == schema.RoleNext:
		u := r.uniqueOf(ns, to)
		u.Next = id
		r.setUnique(ns, to, u)
	case to.Role == schema.RoleNone || from == nil:
		to.Role = schema.RoleHolder
		r.setUnique(ns, to, schema.UniqueRow{Holder: id, Slot: to.Slot()})
	}
}

// inherit makes the task that was next the holder of its key. The key's row says so already.
func (r *Round) inherit(ns string, id task.ID, q *Queue) {
	from := r.execOf(ns, id)
	to := *from
	to.Role = schema.RoleHolder
	r.Move(ns, id, q, from, &to)
}

// KeyTaken says who else holds the unique key of a task that has let go of it.
func (r *Round) KeyTaken(ns string, x *schema.Exec) (by task.ID, taken bool) {
	if x.Unique == nil || x.Role == schema.RoleHolder {
		return by, false
	}
	u, taken := schema.ReadUnique(r.tx, ns, x.Queue, x.Unique.Key)
	return u.Holder, taken
}

// uniqueOf is the row of a key that a task has a part in.
func (r *Round) uniqueOf(ns string, x *schema.Exec) schema.UniqueRow {
	u, ok := schema.ReadUnique(r.tx, ns, x.Queue, x.Unique.Key)
	if !ok {
		schema.Must(fmt.Errorf("unique key %q of queue %q has no row", x.Unique.Key, x.Queue))
	}
	return u
}

// execOf is where a task is that a unique key's row names.
func (r *Round) execOf(ns string, id task.ID) *schema.Exec {
	x, err := r.Exec(ns, id)
	schema.Must(err)
	return x
}

func (r *Round) setUnique(ns string, x *schema.Exec, u schema.UniqueRow) {
	r.tx.Set(schema.UniqueKey(ns, x.Queue, x.Unique.Key), u.Encode())
}

// HoldsUnique says whether a unique key of a queue is held by a task of one of the slots.
func HoldsUnique(from store.Reader, ns, name string, slots task.SlotSet) (held bool, err error) {
	keys := schema.UniqueKey(ns, name, "")
	from.Scan(keys, schema.After(keys), func(_, v []byte) bool {
		var u schema.UniqueRow
		u, err = schema.DecodeUnique(v)
		held = err == nil && slots.Has(u.Slot)
		return err == nil && !held
	})
	return held, err
}

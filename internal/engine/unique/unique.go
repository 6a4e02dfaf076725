// Package unique lets one task of a queue hold a key, from its enqueue until it leaves the set of states that it names. The key's row says
// by which task it is held, and which one waits to hold it next. It changes in the entry that moves the task, so it can't outlive it. Tasks
// without a unique key know nothing of it, and it knows neither queues nor how a task is moved.
//
// A next task exists only while the holder is claimed. It lies in no lane, so that it can't run; when the holder's claim ends, it
// becomes the holder: its data is newer, so a holder that would wait for another run is discarded instead.
package unique

import (
	"fmt"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Round is the round that moves tasks.
type Round interface {
	Tx() *store.Tx
	Exec(ns string, id task.ID) (*schema.Exec, error)
}

// Pass keeps the row of a task's unique key in step with the task, as part of a move. It returns the task that holds the key
// from now on and is to be moved after this one, if any.
func Pass(r Round, ns string, id task.ID, from, to *schema.Exec) (heir task.ID) {
	switch {
	case from == nil || from.State.Ended() && !to.State.Ended():
		take(r, ns, id, from, to)
		return heir
	case to.Role == schema.RoleNext && to.State.Ended():
		to.Role = schema.RoleNone
		u := rowOf(r, ns, to)
		u.Next = task.ID{}
		setRow(r, ns, to, u)
		return heir
	case to.Role != schema.RoleHolder || from.Role != schema.RoleHolder || !to.State.Ended():
		return heir
	}
	if from.State == task.Claimed {
		heir = rowOf(r, ns, to).Next
	}
	switch {
	case heir != (task.ID{}):
		to.Role = schema.RoleNone
		setRow(r, ns, to, schema.UniqueRow{Holder: heir, Slot: execOf(r, ns, heir).Slot()})
	case !to.Unique.States.Has(to.State) || to.Reason == task.ReasonReplaced, to.Reason == task.ReasonMoved:
		to.Role = schema.RoleNone
		r.Tx().Delete(schema.UniqueKey(ns, to.Queue, to.Unique.Key))
	}
	return heir
}

// take is for a task that asks for its key: a new one, in the role that it was given, or one that is replayed, whose key is
// its own or free.
func take(r Round, ns string, id task.ID, from, to *schema.Exec) {
	switch {
	case from == nil && to.Role == schema.RoleNext:
		u := rowOf(r, ns, to)
		u.Next = id
		setRow(r, ns, to, u)
	case to.Role == schema.RoleNone || from == nil:
		to.Role = schema.RoleHolder
		setRow(r, ns, to, schema.UniqueRow{Holder: id, Slot: to.Slot()})
	}
}

// HasNext says whether another task waits to hold the key that a task holds.
func HasNext(r Round, ns string, x *schema.Exec) bool {
	return x.Role == schema.RoleHolder && rowOf(r, ns, x).Next != (task.ID{})
}

// Forget removes the key of a task that is forgotten while it holds it.
func Forget(r Round, ns string, x *schema.Exec) {
	if x.Role == schema.RoleHolder {
		r.Tx().Delete(schema.UniqueKey(ns, x.Queue, x.Unique.Key))
	}
}

// Taken says who else holds the unique key of a task that has let go of it.
func Taken(r Round, ns string, x *schema.Exec) (by task.ID, taken bool) {
	if x.Unique == nil || x.Role == schema.RoleHolder {
		return by, false
	}
	u, taken := schema.ReadUnique(r.Tx(), ns, x.Queue, x.Unique.Key)
	return u.Holder, taken
}

// HeldBy says whether a unique key of a queue is held by a task of one of the slots.
func HeldBy(from store.Reader, ns, name string, slots task.SlotSet) (held bool, err error) {
	keys := schema.UniqueKey(ns, name, "")
	from.Scan(keys, schema.After(keys), func(_, v []byte) bool {
		var u schema.UniqueRow
		u, err = schema.DecodeUnique(v)
		held = err == nil && slots.Has(u.Slot)
		return err == nil && !held
	})
	return held, err
}

// rowOf is the row of a key that a task has a part in.
func rowOf(r Round, ns string, x *schema.Exec) schema.UniqueRow {
	u, ok := schema.ReadUnique(r.Tx(), ns, x.Queue, x.Unique.Key)
	if !ok {
		schema.Must(fmt.Errorf("unique key %q of queue %q has no row", x.Unique.Key, x.Queue))
	}
	return u
}

func setRow(r Round, ns string, x *schema.Exec, u schema.UniqueRow) {
	r.Tx().Set(schema.UniqueKey(ns, x.Queue, x.Unique.Key), u.Encode())
}

// execOf is where a task is that a key's row names.
func execOf(r Round, ns string, id task.ID) *schema.Exec {
	x, err := r.Exec(ns, id)
	schema.Must(err)
	return x
}

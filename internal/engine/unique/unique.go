// Package unique lets one task of a queue hold a key, from its enqueue until it leaves the set of states that it names.
// The key's row names the task that holds it, and the one that waits to hold it next. It changes in the log entry that
// moves the task, so it can't outlive it. Tasks without a unique key are not affected. The package knows neither queues
// nor how a task is moved.
//
// A next task exists only while the holder is claimed. It is in no lane, so that it can't run. When the holder's claim
// ends, the next task becomes the holder: its data is newer, so a holder that would wait for another run is discarded
// instead.
package unique

import (
	"fmt"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Round is the part of engine.Round that this package needs.
type Round interface {
	Tx() *store.Tx
	Exec(ns string, id task.ID) (*schema.Exec, error)
}

// Keep keeps the row of a task's unique key in step with the task, as part of a move. It returns the task, if any, that
// has become the holder of the key and must be moved after this move.
func Keep(r Round, ns string, id task.ID, from, to *schema.Exec) (newHolder task.ID) {
	switch {
	case from == nil || from.State.Ended() && !to.State.Ended():
		take(r, ns, id, from, to)
		return newHolder
	case to.Role == schema.RoleNext && to.State.Ended():
		to.Role = schema.RoleNone
		u := rowOf(r, ns, to)
		u.Next = task.ID{}
		setRow(r, ns, to, u)
		return newHolder
	case to.Role != schema.RoleHolder || from.Role != schema.RoleHolder || !to.State.Ended():
		return newHolder
	}
	if from.State == task.Claimed {
		newHolder = rowOf(r, ns, to).Next
	}
	switch {
	case newHolder != (task.ID{}):
		to.Role = schema.RoleNone
		setRow(r, ns, to, schema.UniqueRow{Holder: newHolder})
	case !to.Unique.States.Has(to.State) || to.Reason == task.ReasonReplaced, to.Reason == task.ReasonMoved:
		to.Role = schema.RoleNone
		r.Tx().Delete(schema.UniqueKey(ns, to.Queue, to.Unique.Key))
	}
	return newHolder
}

// take assigns the key to a task: to a new one, in the role that it was given, or to a replayed one, which still holds
// its key or finds it free.
func take(r Round, ns string, id task.ID, from, to *schema.Exec) {
	switch {
	case from == nil && to.Role == schema.RoleNext:
		u := rowOf(r, ns, to)
		u.Next = id
		setRow(r, ns, to, u)
	case to.Role == schema.RoleNone || from == nil:
		to.Role = schema.RoleHolder
		setRow(r, ns, to, schema.UniqueRow{Holder: id})
	}
}

// HasNext reports whether another task waits to hold the key that x holds.
func HasNext(r Round, ns string, x *schema.Exec) bool {
	return x.Role == schema.RoleHolder && rowOf(r, ns, x).Next != (task.ID{})
}

// Forget removes the key if the forgotten task still holds it.
func Forget(r Round, ns string, x *schema.Exec) {
	if x.Role == schema.RoleHolder {
		r.Tx().Delete(schema.UniqueKey(ns, x.Queue, x.Unique.Key))
	}
}

// Taken returns the other task, if any, that holds the unique key of a task that has released it.
func Taken(r Round, ns string, x *schema.Exec) (by task.ID, taken bool) {
	if x.Unique == nil || x.Role == schema.RoleHolder {
		return by, false
	}
	u, taken := schema.ReadUnique(r.Tx(), ns, x.Queue, x.Unique.Key)
	return u.Holder, taken
}

// Elsewhere reports whether a task of another shard may hold the unique key that x has released, by this shard's copy
// of the queue. Then x can't get it back here.
func Elsewhere(c *task.QueueConfig, x *schema.Exec) bool {
	return x.Unique != nil && x.Role != schema.RoleHolder && c.KeyMayBeElsewhere(x.Unique.Key)
}

// HeldIn reports whether a task holds a unique key of the queue that is in one of the slots.
func HeldIn(from store.Reader, ns, name string, slots task.SlotSet) (held bool) {
	keys := schema.UniqueKey(ns, name, "")
	from.Scan(keys, schema.After(keys), func(k, _ []byte) bool {
		held = slots.Has(task.KeySlot(string(k[len(keys):])))
		return !held
	})
	return held
}

// rowOf returns the row of the key that a task holds or waits for.
func rowOf(r Round, ns string, x *schema.Exec) schema.UniqueRow {
	u, ok := schema.ReadUnique(r.Tx(), ns, x.Queue, x.Unique.Key)
	if !ok {
		schema.Damaged(fmt.Errorf("unique key %q of queue %q has no row", x.Unique.Key, x.Queue))
	}
	return u
}

func setRow(r Round, ns string, x *schema.Exec, u schema.UniqueRow) {
	r.Tx().Set(schema.UniqueKey(ns, x.Queue, x.Unique.Key), u.Encode())
}

// execOf returns the state of a task named in a key's row.
func execOf(r Round, ns string, id task.ID) *schema.Exec {
	return schema.Must(r.Exec(ns, id))
}

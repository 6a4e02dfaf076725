package unique

import (
	"fmt"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Resolution is the result of looking up the unique key of a new task.
type Resolution struct {
	// Holder holds the key; nil: no task does.
	Holder   *schema.Exec
	HolderID task.ID
	// Duplicate means that the task is not created: the holder is returned instead.
	Duplicate bool
	// Replaced is the state of the waiting task that the new one replaces; nil: none.
	Replaced   *schema.Exec
	ReplacedID task.ID

	role schema.Role // the role of the new task
}

// Resolve looks up the unique key of a new task. It returns a conflict if the key is taken and the task says reject.
func Resolve(r Round, ns string, s *task.Spec) (m Resolution, err error) {
	m.role = schema.RoleHolder
	u, taken := schema.ReadUnique(r.Tx(), ns, s.Queue, s.Unique.Key)
	if !taken {
		return m, nil
	}
	x := execOf(r, ns, u.Holder)
	m.Holder, m.HolderID = x, u.Holder
	switch {
	case x.State.Waiting():
		m.ReplacedID, m.Replaced = u.Holder, x
	case u.Next != (task.ID{}):
		m.role, m.ReplacedID, m.Replaced = schema.RoleNext, u.Next, execOf(r, ns, u.Next)
	default:
		m.role = schema.RoleNext
	}
	switch mode := s.Unique.OnConflict; {
	case mode == task.Reject:
		return m, &task.Error{Code: task.CodeConflict, Field: "unique.key",
			Message: fmt.Sprintf("unique.key %q of queue %q belongs to task %s, which is %s", s.Unique.Key, s.Queue, u.Holder, x.State)}
	case mode == task.KeepLast && !x.State.Ended(), mode == task.Replace && m.Replaced != nil:
		return m, nil
	}
	m.Duplicate = true
	return m, nil
}

// Taken reports whether a task holds the key.
func (m *Resolution) Taken() bool { return m.Holder != nil }

// ApplyTo sets the role of the new task, and its place in the lane if it replaces a ready task.
func (m *Resolution) ApplyTo(x *schema.Exec) {
	x.Role = m.role
	if m.Replaced != nil && m.Replaced.State == task.Ready && x.State == task.Ready {
		x.Seq = m.Replaced.Seq
	}
}

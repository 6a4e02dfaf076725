package unique

import (
	"fmt"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Meeting is what a new task finds that asks for a unique key.
type Meeting struct {
	// Holder has the key; nil: nobody.
	Holder   *schema.Exec
	HolderID task.ID
	// Duplicate says that the task is not to be made: the holder stands for it.
	Duplicate bool
	// Replaced is the task that waits and makes room for the new one, as it is; nil: none.
	Replaced   *schema.Exec
	ReplacedID task.ID

	role schema.Role // that the new task will have
}

// Meet looks whose the unique key of a new task is, and refuses a task that says so.
func Meet(r Round, ns string, s *task.Spec) (m Meeting, err error) {
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

// Taken says whether somebody holds the key.
func (m *Meeting) Taken() bool { return m.Holder != nil }

// TakePlace gives a new task what it gets by a meeting: its role, and the place in line of the task that makes room for it.
func (m *Meeting) TakePlace(x *schema.Exec) {
	x.Role = m.role
	if m.Replaced != nil && m.Replaced.State == task.Ready && x.State == task.Ready {
		x.Seq = m.Replaced.Seq
	}
}

// Leaving is how many waiting tasks go when the new one comes.
func (m *Meeting) Leaving() int64 {
	if m.Replaced != nil {
		return 1
	}
	return 0
}

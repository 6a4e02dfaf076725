package check

import (
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// noteUnique records a task's role in its unique key.
func (c *checker) noteUnique(id task.ID, x *schema.Exec) {
	if x.Unique == nil {
		if x.Role != schema.RoleNone {
			c.Find("task %s has role %d in no unique key", id, x.Role)
		}
		return
	}
	key := string(schema.UniqueKey(c.ns, x.Queue, x.Unique.Key))
	u := c.uniques[key]
	switch {
	case x.Role == schema.RoleNone && !x.State.Ended():
		c.Find("task %s is %s and has no part in its unique key", id, x.State)
	case x.Role == schema.RoleHolder && !x.Unique.States.Has(x.State):
		c.Find("task %s is %s and holds its unique key", id, x.State)
	case x.Role == schema.RoleNext && x.State != task.Ready && x.State != task.Scheduled:
		c.Find("task %s is %s and next to hold its unique key", id, x.State)
	case x.Role == schema.RoleHolder && u.Holder != (task.ID{}), x.Role == schema.RoleNext && u.Next != (task.ID{}):
		c.Find("task %s shares a role in its unique key %q", id, x.Unique.Key)
	case x.Role == schema.RoleHolder:
		u.Holder = id
	case x.Role == schema.RoleNext:
		u.Next = id
	}
	if x.Role != schema.RoleNone {
		c.uniques[key] = u
	}
}

// expectUnique records the rows that must exist because of unique keys.
func (c *checker) expectUnique() {
	for key, u := range c.uniques {
		holder := c.tasks[u.Holder]
		if holder == nil || u.Next != (task.ID{}) && holder.State != task.Claimed {
			c.Find("unique key %q: task %s waits for a task that does not run", key, u.Next)
		}
		c.want[key] = u.Encode()
	}
}

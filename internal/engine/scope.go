package engine

import "github.com/pawlq/pawl/internal/task"

// A call may be limited to some queues. What lies in others is not there for it: the answer is that of something that does not
// exist. A group and an operation have no queue of their own; they are there for who may see all that their makers could.

// TaskWithin refuses a task outside a scope.
func TaskWithin(r *Round, s task.Scope, ns string, id task.ID) error {
	if s.All() {
		return nil
	}
	x, err := r.Exec(ns, id)
	if err == nil && !s.Sees(x.Queue) {
		err = task.NotFound("task", id.String())
	}
	return err
}

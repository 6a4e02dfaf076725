package engine

import "github.com/pawlq/pawl/internal/task"

// A call may be limited to some queues. What belongs to others does not exist for it: the answer is "not found". A
// group and an operation have no queue of their own; they are visible to callers who may see everything that their
// creators could.

// TaskWithin returns a not-found error for a task outside a scope.
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

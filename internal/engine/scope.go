package engine

import (
	"github.com/pawlq/pawl/internal/task"
)

// A call may be limited to some queues. What lies in others is not there for it: the answer is that of something that does not
// exist. A group and an operation have no queue of their own; they are there for who may see all that their makers could.

// TaskWithin refuses a task outside a scope.
func TaskWithin(r *Round, s task.Scope, ns string, id task.ID) error {
	if s.All() {
		return nil
	}
	x, err := r.exec(ns, id)
	if err == nil && !s.Sees(x.Queue) {
		err = task.NotFound("task", id.String())
	}
	return err
}

// ScheduleWithin refuses a schedule that makes tasks outside a scope; one that does not exist is not refused.
func ScheduleWithin(r *Round, s task.Scope, ns, name string) error {
	if s.All() {
		return nil
	}
	if p, _, ok := r.schedule(ns, name); ok && !s.Sees(p.Task.Queue) {
		return task.NotFound("schedule", name)
	}
	return nil
}

// GroupWithin refuses a group that may have members outside a scope.
func GroupWithin(r *Round, s task.Scope, ns string, id task.ID) error {
	if s.All() {
		return nil
	}
	g, ok := r.anyGroup(ns, id)
	if !ok || !s.Covers(task.Scope{Queues: g.within}) {
		return task.NotFound("group", id.String())
	}
	return nil
}

// OperationWithin refuses an operation that may be about tasks outside a scope.
func OperationWithin(r *Round, s task.Scope, ns string, id task.ID) error {
	if s.All() {
		return nil
	}
	o, err := ShowOperation(r.tx, ns, id)
	if err == nil && !s.Covers(o.Scope()) {
		err = task.NotFound("operation", id.String())
	}
	return err
}

// Scope is what the operation was limited to by who started it.
func (o *Operation) Scope() task.Scope { return task.Scope{Queues: o.Spec.Filter.Within} }

// inGroup refuses a member, or one that is to follow it, in a queue that the group is not limited to.
func (g *taskGroup) inGroup(s *task.Spec) error {
	scope := task.Scope{Queues: g.within}
	if scope.All() {
		return nil
	}
	if !scope.Sees(s.Queue) {
		return task.Invalid("queue", "%q is none that group %s is limited to, by who made it", s.Queue, g.id)
	}
	for i := range s.Then {
		if err := g.inGroup(&s.Then[i]); err != nil {
			return err
		}
	}
	return nil
}

package broker

import (
	"context"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/workflow"
	"github.com/pawlq/pawl/internal/task"
)

// The scope of a call is in its context; see task.Scope. It is checked where things are read, in the round or the view itself.

// inScope runs fn in a round, unless check finds that its object is outside the call's scope.
func inScope[T any](ctx context.Context, check func(*engine.Round, task.Scope) error, fn func(*engine.Round) (T,
	error)) func(*engine.Round) (T, error) {
	scope := task.ScopeOf(ctx)
	if scope.All() {
		return fn
	}
	return func(round *engine.Round) (T, error) {
		if err := check(round, scope); err != nil {
			var zero T
			return zero, err
		}
		return fn(round)
	}
}

func onTask(ns string, id task.ID) func(*engine.Round, task.Scope) error {
	return func(round *engine.Round, s task.Scope) error { return engine.TaskWithin(round, s, ns, id) }
}

func onGroup(ns string, id task.ID) func(*engine.Round, task.Scope) error {
	return func(round *engine.Round, s task.Scope) error { return workflow.Within(round, s, ns, id) }
}

// seen returns a task that was read, if it is visible to the call.
func seen(ctx context.Context, v *View, err error) (*View, error) {
	if err == nil && !task.ScopeOf(ctx).Sees(v.Exec.Queue) {
		return nil, task.NotFound("task", v.ID.String())
	}
	return v, err
}

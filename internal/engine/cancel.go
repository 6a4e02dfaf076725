package engine

import (
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Cancel ends a task that has not ended. Its worker's token is invalid from then on. Cancelling a cancelled task is a no-op, so that a call whose
// answer was lost can be repeated; if the task has ended otherwise, the error is task.ErrWrongState, with the state.
func Cancel(r *Round, ns string, id task.ID) error {
	from, err := r.Exec(ns, id)
	if err != nil {
		return err
	}
	if from.State == task.Cancelled {
		return nil
	}
	if from.State.Ended() {
		return task.WrongState("cancel", id, from.State)
	}
	c := r.Change(ns, id, from)
	c.Finish(task.Cancelled, task.ReasonCaller)
	if from.State == task.Claimed {
		c.endAttempt(task.OutcomeCancelled, schema.Failure{})
		c.noteLost(task.StaleCancelled)
	}
	return nil
}

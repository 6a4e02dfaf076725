package engine

import (
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Cancel ends a task that has not ended. Its worker's token is good for nothing from then on. On a cancelled task it is
// accepted and changes nothing, so that a lost answer is safe to repeat; on one that has ended otherwise it is
// task.ErrWrongState, with the state.
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
		c.lose(task.StaleCancelled)
	}
	return nil
}

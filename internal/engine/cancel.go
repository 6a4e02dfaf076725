package engine

import (
	"errors"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Cancel ends a task that has not ended. Its worker's token is invalid from then on. Cancelling a cancelled task is a
// no-op, so that a call whose answer was lost can be repeated; if the task has ended otherwise, the error is
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
		c.noteLost(task.StaleCancelled)
	}
	return nil
}

// CancelOnce is Cancel for a message of another shard, which may arrive again: it changes nothing then, although the
// task may have been retried meanwhile. Nor does it change a task that has ended.
func CancelOnce(r *Round, ns string, id, message task.ID) error {
	q := request{r: r, n: &NewTask{Namespace: ns, ID: id, Spec: task.Spec{RequestID: message, RequestTTL: task.MessageWindow}}}
	if a, err := q.byRequest(); err != nil || a.Duplicate {
		return err
	}
	if err := Cancel(r, ns, id); err != nil && !errors.Is(err, task.ErrWrongState) {
		return err
	}
	q.assignKeys(nil)
	return nil
}

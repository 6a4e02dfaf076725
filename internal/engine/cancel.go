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
	to := *from
	r.Finish(ns, id, r.QueueOf(ns, from), from, &to, task.Cancelled, task.ReasonCaller)
	if from.State == task.Claimed {
		r.endAttempt(ns, id, from, &to, task.OutcomeCancelled, schema.Failure{})
		r.lose(id, from, task.StaleCancelled)
	}
	return nil
}

// lose tells that a claim ended without its holder's doing.
func (r *Round) lose(id task.ID, x *schema.Exec, reason string) {
	r.Lost = append(r.Lost, Lost{ID: id, Token: r.l.token(x), Reason: reason})
}

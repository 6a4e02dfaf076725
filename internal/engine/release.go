package engine

import (
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Release returns a claimed task without using up an attempt: to its old place, or, with a delay, to run later (a
// snooze). Repeating it with the same token returns the first answer.
func Release(r *Round, h Hold, delay time.Duration) (Settled, error) {
	from, ended, err := r.Held("release", h)
	if err != nil {
		if ended != nil && (ended.Outcome == task.OutcomeReleased || ended.Outcome == task.OutcomeSnoozed) {
			return answerOf(ended), nil
		}
		return Settled{}, err
	}
	c := h.change(r, from)
	to := c.To
	outcome := task.OutcomeReleased
	if delay > 0 {
		outcome = task.OutcomeSnoozed
		to.Snoozes++
		to.State, to.RunAt = task.Scheduled, r.now.Add(delay)
	} else {
		to.Releases++
		to.State, to.ReadyAt = task.Ready, r.now
	}
	c.requeue()
	c.endAttempt(outcome, schema.Failure{})
	return settled(to), nil
}

// GiveBack releases a claim whose answer was not received. If the claim call was repeated meanwhile, a worker has the
// task, and GiveBack is refused.
func GiveBack(r *Round, h Hold) (Settled, error) {
	x, _, err := r.Held("give back", h)
	if err != nil {
		return Settled{}, err
	}
	if x.Claim.Repeated {
		return Settled{}, &task.Error{Code: task.CodeWrongState, State: x.State,
			Message: fmt.Sprintf("give back %q: it was claimed again with the same key", h.ID)}
	}
	return Release(r, h, 0)
}

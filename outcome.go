package pawl

import (
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/client/outcome"
	"github.com/pawlq/pawl/pawltype"
)

// DeadLetter ends the task as a dead letter at once: it should have succeeded, and no retry can help.
func DeadLetter(err error) error { return &outcome.Steer{Outcome: pawltype.OutcomeDead, Err: err} }

// Discard ends the task on purpose: there is nothing to do any more. err says why, and raises no alarm.
func Discard(err error) error { return &outcome.Steer{Outcome: pawltype.OutcomeDiscarded, Err: err} }

// Poison ends the task as poisoned: its payload can't be read. Payloads that don't decode end so by themselves.
func Poison(err error) error { return &outcome.Steer{Outcome: pawltype.OutcomePoisoned, Err: err} }

// RetryIn is a failure whose next attempt is due after d, in place of the backoff. It uses an attempt.
func RetryIn(d time.Duration, err error) error {
	return &outcome.Steer{Outcome: pawltype.OutcomeFailed, Delay: max(d, 1), Err: err}
}

// Snooze puts the task off for d. It is not a failure: no attempt is used.
func Snooze(d time.Duration) error {
	return &outcome.Steer{Outcome: pawltype.OutcomeSnoozed, Delay: max(d, 1), Err: fmt.Errorf("snoozed for %s", d)}
}

// OutcomeOf says what becomes of a task whose handler returned err, for middleware that counts or logs: OutcomeSucceeded for nil;
// OutcomeReleased, OutcomeCancelled or OutcomeLeaseLost for a handler that was stopped, as Middleware describes; OutcomeFailed for any
// other error that does not steer.
func OutcomeOf(err error) pawltype.Outcome { return outcome.Of(err) }

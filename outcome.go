package pawl

import (
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/client/outcome"
	"github.com/pawlq/pawl/pawltype"
)

// DeadLetter makes the task a dead letter right away: it should have succeeded, and no retry can help.
func DeadLetter(err error) error { return &outcome.Directive{Outcome: pawltype.OutcomeDead, Err: err} }

// Discard ends the task on purpose: there is nothing left to do. err is the reason, and raises no alarm.
func Discard(err error) error {
	return &outcome.Directive{Outcome: pawltype.OutcomeDiscarded, Err: err}
}

// Poison ends the task as poisoned: its payload can't be read. A payload that doesn't decode does so automatically.
func Poison(err error) error { return &outcome.Directive{Outcome: pawltype.OutcomePoisoned, Err: err} }

// RetryIn fails the attempt; the next one is due after d, instead of the backoff. It uses an attempt.
func RetryIn(d time.Duration, err error) error {
	return &outcome.Directive{Outcome: pawltype.OutcomeFailed, Delay: max(d, 1), Err: err}
}

// Snooze puts the task off by d. It is not a failure: no attempt is used.
func Snooze(d time.Duration) error {
	return &outcome.Directive{Outcome: pawltype.OutcomeSnoozed, Delay: max(d, 1), Err: fmt.Errorf("snoozed for %s", d)}
}

// OutcomeOf returns the outcome of a task whose handler returned err, for middleware that counts or logs: OutcomeSucceeded for nil;
// OutcomeReleased, OutcomeCancelled or OutcomeLeaseLost for a handler that was stopped, as Mux.Use describes; OutcomeFailed for any
// other error that does not steer.
func OutcomeOf(err error) pawltype.Outcome { return outcome.Of(err) }

package pawl

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// A handler that returns nil has succeeded. Any error is a failure that is retried until the attempts run out, unless it
// wraps one of these.
type steer struct {
	outcome Outcome
	delay   time.Duration // of RetryIn and Snooze
	err     error
}

// Error gives the message of the error within.
func (s *steer) Error() string {
	if s.err != nil {
		return s.err.Error()
	}
	return string(s.outcome)
}

// Unwrap gives the error within.
func (s *steer) Unwrap() error { return s.err }

// DeadLetter ends the task as a dead letter at once: it should have succeeded, and no retry can help.
func DeadLetter(err error) error { return &steer{outcome: OutcomeDead, err: err} }

// Discard ends the task on purpose: there is nothing to do any more. err says why, and raises no alarm.
func Discard(err error) error { return &steer{outcome: OutcomeDiscarded, err: err} }

// Poison ends the task as poisoned: its payload can't be read. Payloads that don't decode end so by themselves.
func Poison(err error) error { return &steer{outcome: OutcomePoisoned, err: err} }

// RetryIn is a failure whose next attempt is due after d, in place of the backoff. It uses an attempt.
func RetryIn(d time.Duration, err error) error {
	return &steer{outcome: OutcomeFailed, delay: max(d, 1), err: err}
}

// Snooze puts the task off for d. It is not a failure: no attempt is used.
func Snooze(d time.Duration) error {
	return &steer{outcome: OutcomeSnoozed, delay: max(d, 1), err: fmt.Errorf("snoozed for %s", d)}
}

// OutcomeOf says what becomes of a task whose handler returned err, for middleware that counts or logs: OutcomeSucceeded for nil;
// OutcomeReleased, OutcomeCancelled or OutcomeLeaseLost for a handler that was stopped, as Middleware describes; OutcomeFailed for any
// other error that does not steer.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return OutcomeSucceeded
	}
	if s := steerOf(err); s != nil {
		return s.outcome
	}
	if i := interruptionOf(err); i != nil {
		return i.outcome()
	}
	if _, unknown := errors.AsType[*unknownType](err); unknown {
		return OutcomeReleased
	}
	return OutcomeFailed
}

func steerOf(err error) *steer {
	var s *steer
	if errors.As(err, &s) {
		return s
	}
	return nil
}

// PanicError is what a panic in a handler becomes.
type PanicError struct {
	Value any    // of the panic
	Stack []byte // of the goroutine that panicked
}

// Error gives the value.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap gives the value, if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

const (
	// The broker cuts these too; here it keeps the frames small.
	maxErrorText = 8 << 10
	maxStack     = 8 << 10
)

// taskErrorOf describes an error for the attempt log.
func taskErrorOf(err error) *pawlv1.TaskError {
	if err == nil {
		return nil
	}
	out := &pawlv1.TaskError{Message: cutText(err.Error(), maxErrorText), Type: cutText(typeOf(err), 256)}
	var p *PanicError
	if errors.As(err, &p) {
		out.Type, out.Stack = "panic", cutText(string(p.Stack), maxStack)
	}
	return out
}

// typeOf names the type of the innermost error, which tells more than *fmt.wrapError. A timeout is "timeout".
func typeOf(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return reflect.TypeOf(err).String()
		}
		err = inner
	}
}

package pawl

import (
	"context"
	"errors"
	"fmt"
)

// interruption is what middleware sees of a handler that returned an error after its context had been ended from outside. What such a
// handler returns, a driver's "connection closed" say, does not tell whether it failed or was stopped.
type interruption struct {
	cause error // ErrDraining, ErrCancelled, or an error that wraps ErrLeaseLost
	err   error // what the handler returned
}

// Error gives the cause first.
func (i *interruption) Error() string {
	if errors.Is(i.err, i.cause) {
		return i.err.Error()
	}
	return fmt.Sprintf("%v: %v", i.cause, i.err)
}

// Unwrap gives the cause, and what the handler returned.
func (i *interruption) Unwrap() []error { return []error{i.cause, i.err} }

// outcome is what becomes of the task.
func (i *interruption) outcome() Outcome {
	switch {
	case errors.Is(i.cause, ErrDraining):
		return OutcomeReleased
	case errors.Is(i.cause, ErrCancelled):
		return OutcomeCancelled
	}
	return OutcomeLeaseLost
}

// interrupted adds why the context of a handler was ended to what the handler returned. An error that steers stays as it is: its handler
// knows what it says.
func interrupted(ctx context.Context, err error) error {
	if err == nil || steerOf(err) != nil {
		return err
	}
	cause := context.Cause(ctx)
	for _, why := range []error{ErrDraining, ErrCancelled, ErrLeaseLost} {
		if errors.Is(cause, why) {
			return &interruption{cause: cause, err: err}
		}
	}
	return err
}

func interruptionOf(err error) *interruption {
	i, _ := errors.AsType[*interruption](err)
	return i
}

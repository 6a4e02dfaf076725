package outcome

import (
	"context"
	"errors"
	"fmt"

	"github.com/pawlq/pawl/pawltype"
)

// Interruption is the error that middleware sees if a handler returned an error after its context had been ended from outside. What such
// a handler returns, a driver's "connection closed" say, does not tell whether it failed or was stopped.
type Interruption struct {
	cause error // ErrDraining, ErrCancelled, or an error that wraps ErrLeaseLost
	err   error // what the handler returned
}

// Error returns the cause first.
func (i *Interruption) Error() string {
	if errors.Is(i.err, i.cause) {
		return i.err.Error()
	}
	return fmt.Sprintf("%v: %v", i.cause, i.err)
}

// Unwrap returns the cause, and what the handler returned.
func (i *Interruption) Unwrap() []error { return []error{i.cause, i.err} }

// Outcome returns the outcome of the task.
func (i *Interruption) Outcome() pawltype.Outcome {
	switch {
	case errors.Is(i.cause, pawltype.ErrDraining):
		return pawltype.OutcomeReleased
	case errors.Is(i.cause, pawltype.ErrCancelled):
		return pawltype.OutcomeCancelled
	}
	return pawltype.OutcomeLeaseLost
}

// Interrupted adds the reason why a handler's context was ended to what the handler returned. An error that steers is left unchanged:
// its handler knows what it wants.
func Interrupted(ctx context.Context, err error) error {
	if err == nil || DirectiveOf(err) != nil {
		return err
	}
	cause := context.Cause(ctx)
	for _, why := range []error{pawltype.ErrDraining, pawltype.ErrCancelled, pawltype.ErrLeaseLost} {
		if errors.Is(cause, why) {
			return &Interruption{cause: cause, err: err}
		}
	}
	return err
}

func interruptionOf(err error) *Interruption {
	i, _ := errors.AsType[*Interruption](err)
	return i
}

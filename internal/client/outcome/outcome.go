// Package outcome interprets a handler's error for its task: whether it is retried, dead, discarded, poisoned or put off, and whether
// its handler was stopped. It does not know the broker.
package outcome

import (
	"errors"
	"fmt"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/client/encrypt"
	"github.com/pawlq/pawl/internal/client/rpc"
	"github.com/pawlq/pawl/keyring"
	"github.com/pawlq/pawl/pawltype"
)

// UnknownType: the broker pushed a task of a type that the worker did not ask for. The task is released for a worker that has the type.
type UnknownType struct{ Name string }

// Error names the type.
func (e *UnknownType) Error() string { return fmt.Sprintf("pawl: no handler for type %q", e.Name) }

// Directive is an error that decides what happens to the task. Any other error is a failure, which is retried until the attempts run out.
type Directive struct {
	Outcome pawltype.Outcome
	Delay   time.Duration // of RetryIn and Snooze
	Err     error
}

// Error returns the message of the wrapped error.
func (s *Directive) Error() string {
	if s.Err != nil {
		return s.Err.Error()
	}
	return string(s.Outcome)
}

// Unwrap returns the wrapped error.
func (s *Directive) Unwrap() error { return s.Err }

// Of returns the outcome of a task whose handler returned err.
func Of(err error) pawltype.Outcome {
	if err == nil {
		return pawltype.OutcomeSucceeded
	}
	if s := DirectiveOf(err); s != nil {
		return s.Outcome
	}
	if i := interruptionOf(err); i != nil {
		return i.Outcome()
	}
	if _, unknown := errors.AsType[*UnknownType](err); unknown {
		return pawltype.OutcomeReleased
	}
	return pawltype.OutcomeFailed
}

func DirectiveOf(err error) *Directive {
	var s *Directive
	if errors.As(err, &s) {
		return s
	}
	return nil
}

// OpenClaimed decrypts a claimed task in place, once. If it can't, it returns the reason. Forged data is poisoned; for other data, another
// worker may have the key.
func OpenClaimed(conn rpc.Conn, p *pawlv1.ClaimedTask) error {
	err := encrypt.OpenClaimed(conn, p)
	if keyring.IsForged(err) {
		err = &Directive{Outcome: pawltype.OutcomePoisoned, Err: err}
	}
	return err
}

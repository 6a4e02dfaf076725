// Package outcome says what the error of a handler means for its task: whether it is retried, dead, discarded, poisoned or put off, and
// whether its handler had been stopped. It does not know the broker.
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

// UnknownType: the broker pushed what the worker did not ask for. The task goes back for a worker that knows it.
type UnknownType struct{ Name string }

// Error names the type.
func (e *UnknownType) Error() string { return fmt.Sprintf("pawl: no handler for type %q", e.Name) }

// A handler that returns nil has succeeded. Any error is a failure that is retried until the attempts run out, unless it
// wraps one of these.
type Steer struct {
	Outcome pawltype.Outcome
	Delay   time.Duration // of RetryIn and Snooze
	Err     error
}

// Error gives the message of the error within.
func (s *Steer) Error() string {
	if s.Err != nil {
		return s.Err.Error()
	}
	return string(s.Outcome)
}

// Unwrap gives the error within.
func (s *Steer) Unwrap() error { return s.Err }

// Of says what becomes of a task whose handler returned err.
func Of(err error) pawltype.Outcome {
	if err == nil {
		return pawltype.OutcomeSucceeded
	}
	if s := SteerOf(err); s != nil {
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

func SteerOf(err error) *Steer {
	var s *Steer
	if errors.As(err, &s) {
		return s
	}
	return nil
}

// Unreadable is why a handler may not have what it claimed. What was forged is poisoned; another worker may have the key of the rest.
func Unreadable(conn rpc.Conn, p *pawlv1.ClaimedTask) error {
	err := encrypt.Unreadable(conn, p)
	if keyring.IsForged(err) {
		err = &Steer{Outcome: pawltype.OutcomePoisoned, Err: err}
	}
	return err
}

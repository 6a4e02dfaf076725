package forward

import (
	"context"
	"errors"
	"fmt"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// refused is the reply to a call that this node does not know or refuses.
type refused struct {
	Out   *struct{}
	Fault *Fault
}

// Fault is an error on the wire. Exactly one field is set, but Refused may come with Unknown, and Panicked comes with Within.
type Fault struct {
	Refused   *task.Error
	Unknown   bool
	Elsewhere *broker.NotLeader
	Moved     *Moved
	NotRun    string // why the node did not run the call, whoever leads
	Within    string // an internal error; its text is for the log
	Panicked  bool   // it is a shard's PanicError: nothing of the call was kept
}

// Refuse returns the reply to a call that this node refuses without running it.
func Refuse(err error) ([]byte, error) { return verb.Encode(&refused{Fault: FaultOf(err)}) }

// FaultOf returns the form in which an error travels; nil if it is nil.
func FaultOf(err error) *Fault {
	if err == nil {
		return nil
	}
	f := &Fault{Unknown: errors.Is(err, broker.ErrUnknown)}
	if errors.As(err, &f.Elsewhere) || errors.As(err, &f.Moved) {
		return f
	}
	if e, ok := task.AsError(err); ok {
		f.Refused = e
		return f
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		// The call was cut off while it ran. Its caller sees that by its own clock, or has lost the connection.
		f.Unknown = true
		return f
	}
	var panicked *broker.PanicError
	f.Within, f.Panicked = err.Error(), errors.As(err, &panicked)
	return f
}

// Err returns the error as it was, as far as it matters. shard and node say where it comes from.
func (f *Fault) Err(shard, node uint32) error {
	switch {
	case f == nil:
		return nil
	case f.Elsewhere != nil:
		return f.Elsewhere
	case f.Moved != nil:
		return f.Moved
	case f.Unknown && f.Refused != nil:
		return &broker.UnknownError{Refusal: f.Refused}
	case f.Unknown:
		return broker.Unknown("shard %d: node %d was cut off", shard, node)
	case f.Refused != nil:
		return f.Refused
	case f.NotRun != "":
		return &notRun{errors.New(f.NotRun)}
	}
	err := fmt.Errorf("shard %d: node %d: %s", shard, node, f.Within)
	if f.Panicked {
		return &broker.PanicError{Value: err}
	}
	return err
}

// notRun means that a node certainly did not run a call.
type notRun struct{ cause error }

func (e *notRun) Error() string { return e.cause.Error() }
func (e *notRun) Unwrap() error { return e.cause }

// rawFault encodes an error that travels next to an answer.
func rawFault(f *Fault) ([]byte, error) {
	if f == nil {
		return nil, nil
	}
	return verb.Encode(f)
}

// ReadFault decodes what rawFault encodes: nil from an answer without an error.
func ReadFault(b []byte) (f *Fault, err error) {
	if len(b) > 0 {
		err = verb.Decode(b, &f)
	}
	return f, err
}

// FaultsOf returns the errors of the n items of an answer in a form that can travel, and removes them from the items; nil: there are none.
func FaultsOf(n int, of func(i int) *error) (faults []*Fault) {
	for i := range n {
		err := of(i)
		if *err == nil {
			continue
		}
		if faults == nil {
			faults = make([]*Fault, n)
		}
		faults[i] = FaultOf(*err)
		*err = nil
	}
	return faults
}

// ErrorsOf puts the errors that FaultsOf returned back into the n items of an answer.
func ErrorsOf(faults []*Fault, n int, of func(i int) *error) {
	for i := range min(n, len(faults)) {
		if faults[i] != nil {
			*of(i) = faults[i].Err(0, 0)
		}
	}
}

package router

import (
	"context"
	"errors"
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
)

// Calls travel as CBOR maps by the names of Go fields: a field that one side does not know is left out or passed over, so
// that nodes of two versions understand each other. The transport bounds the bytes of a message; these bound what is made of
// them.
const (
	// maxElements is how many items a list or a map may have: far more than a batch or a page has.
	maxElements = 1 << 20
	// maxNesting is how deep lists and maps may lie in each other: a task with its attempts takes 6, one with all that may follow it 46.
	maxNesting = 64
)

var (
	encoding = must(cbor.EncOptions{Time: cbor.TimeRFC3339Nano}.EncMode())
	decoding = must(cbor.DecOptions{MaxArrayElements: maxElements, MaxMapPairs: maxElements, MaxNestedLevels: maxNesting,
		// Error texts are cut by bytes, and workers send what they like.
		UTF8: cbor.UTF8DecodeInvalid}.DecMode())
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // the options are constants
	}
	return v
}

// packer is what holds things that have no form on the wire: pack puts them into fields that have, unpack brings them back.
type packer interface {
	pack()
	unpack()
}

func encode[T any](v *T) ([]byte, error) {
	if p, ok := any(v).(packer); ok {
		p.pack()
	}
	return encoding.Marshal(v)
}

func decode[T any](b []byte, v *T) error {
	if err := decoding.Unmarshal(b, v); err != nil {
		return err
	}
	if p, ok := any(v).(packer); ok {
		p.unpack()
	}
	return nil
}

// reply is the answer to a call. A call of many rounds may have a result beside its error.
type reply[R any] struct {
	Out   *R
	Fault *fault
}

func (a *reply[R]) pack() {
	if p, ok := any(a.Out).(packer); ok && a.Out != nil {
		p.pack()
	}
}

func (a *reply[R]) unpack() {
	if p, ok := any(a.Out).(packer); ok && a.Out != nil {
		p.unpack()
	}
}

// fault is an error on its way. Exactly one field is set, or Unknown beside Refused.
type fault struct {
	Refused   *task.Error
	Unknown   bool
	Elsewhere *broker.Elsewhere
	Moved     *moved
	NotRun    string // why the node did not run the call, whoever leads
	Within    string // an error that must not happen; its words are for the log
}

func faultOf(err error) *fault {
	if err == nil {
		return nil
	}
	f := &fault{Unknown: errors.Is(err, broker.ErrUnknown)}
	if errors.As(err, &f.Elsewhere) || errors.As(err, &f.Moved) {
		return f
	}
	if e, ok := task.AsError(err); ok {
		f.Refused = e
		return f
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		// The call was cut off while it ran. Its caller sees that by its own clock, or has lost the way here.
		f.Unknown = true
		return f
	}
	f.Within = err.Error()
	return f
}

// err is the error as it was, as far as it matters. Shard and node say where it comes from.
func (f *fault) err(shard, node uint32) error {
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
	return fmt.Errorf("shard %d: node %d: %s", shard, node, f.Within)
}

// notRun says that a node certainly did not run a call.
type notRun struct{ cause error }

func (e *notRun) Error() string { return e.cause.Error() }
func (e *notRun) Unwrap() error { return e.cause }

// faultsOf and errorsOf carry the errors of the items of an answer, which are interfaces.
func faultsOf(n int, of func(i int) *error) (faults []*fault) {
	for i := range n {
		err := of(i)
		if *err == nil {
			continue
		}
		if faults == nil {
			faults = make([]*fault, n)
		}
		faults[i] = faultOf(*err)
		*err = nil
	}
	return faults
}

func errorsOf(faults []*fault, n int, of func(i int) *error) {
	for i := range min(n, len(faults)) {
		if faults[i] != nil {
			*of(i) = faults[i].err(0, 0)
		}
	}
}

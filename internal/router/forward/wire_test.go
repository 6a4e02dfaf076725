package forward_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// All fields of the broker's types arrive at the other node, including ones added later.
func TestAllFieldsRoundTrip(t *testing.T) {
	routertest.InFleet(t, 1, func(f *routertest.Fleet) {
		routertest.VerbsRoundTrip(t, f.Nodes[1].Parts)
	})
}

// reply is the answer as nodes of all releases encode and decode it.
type reply[R any] struct {
	Out   *R
	Fault *forward.Fault
}

// An empty payload is distinct from a missing one.
func TestEmptyIsNotMissing(t *testing.T) {
	var nothing []byte
	a := broker.TaskCommand{Edit: broker.Edit{Payload: &nothing}}
	b, err := verb.Encode(&a)
	var got broker.TaskCommand
	if err != nil || verb.Decode(b, &got) != nil || got.Edit.Payload == nil {
		t.Errorf("an empty payload was decoded as %v", got.Edit.Payload)
	}
}

func TestErrorsRoundTrip(t *testing.T) {
	way := func(err error) error {
		a := reply[int]{Fault: forward.FaultOf(err)}
		b, bad := verb.Encode(&a)
		var got reply[int]
		if bad == nil {
			bad = verb.Decode(b, &got)
		}
		if bad != nil {
			t.Fatal(bad)
		}
		return got.Fault.Err(1, 2)
	}
	full := &task.Error{Code: task.CodeStaleClaim, Message: "m", Reason: task.StaleReclaimed, Field: "f", Holder: "w7", State: task.Claimed,
		RetryAfter: time.Second}
	if got, ok := task.AsError(way(fmt.Errorf("wrapped: %w", full))); !ok || *got != *full {
		t.Errorf("a refusal was decoded as %+v", got)
	}
	var notLeader *broker.NotLeader
	if err := way(&broker.NotLeader{Shard: 3, Node: 2}); !errors.As(err, &notLeader) ||
		*notLeader != (broker.NotLeader{Shard: 3, Node: 2}) {
		t.Errorf("NotLeader was decoded as %v", err)
	}
	var to *forward.Moved
	if err := way(forward.MovedTo(queues.Queue{Name: "q", Shard: 3, Config: task.QueueConfig{Version: 7}})); !errors.As(err, &to) ||
		to.Shard != 3 || to.Config.Version != 7 {
		t.Errorf("Moved was decoded as %v", err)
	}
	err := way(broker.Unknown("shard %d", 3))
	if e, ok := task.AsError(err); !errors.Is(err, broker.ErrUnknown) || !ok || e.Code != task.CodeUnavailable {
		t.Errorf("an unknown outcome was decoded as %v", err)
	}
	for _, cut := range []error{context.Canceled, fmt.Errorf("x: %w", context.DeadlineExceeded)} {
		if err := way(cut); !errors.Is(err, broker.ErrUnknown) || !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("%v was decoded as %v, want an unknown outcome", cut, err)
		}
	}
	if err := way(errors.New("secret")); err == nil || errors.Is(err, broker.ErrUnknown) || errors.Is(err, task.ErrUnavailable) {
		t.Errorf("an internal error was decoded as %v", err)
	}
	var panicked *broker.PanicError
	if err := way(fmt.Errorf("wrapped: %w", &broker.PanicError{Value: "at the disco"})); !errors.As(err, &panicked) ||
		!strings.Contains(err.Error(), "at the disco") {
		t.Errorf("a panic was decoded as %v", err)
	}
	if errors.As(way(errors.New("secret")), &panicked) {
		t.Error("an internal error was decoded as a panic")
	}
	if way(nil) != nil {
		t.Error("nil was decoded as an error")
	}
}

func FuzzDecode(f *testing.F) {
	for _, v := range []any{reply[[]int]{Out: new([]int)}, reply[int]{Fault: forward.FaultOf(errors.New("x"))}} {
		b, err := cbor.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0x9f, 0x9f, 0x9f})
	f.Fuzz(func(_ *testing.T, b []byte) {
		if raw, err := broker.ListTasks.Make(broker.TaskList{}).DecodeReply(b); err == nil {
			if f, err := forward.ReadFault(raw); err == nil && f != nil {
				_ = f.Err(1, 2)
			}
		}
		var q []queues.Queue
		_ = verb.Decode(b, &q)
	})
}

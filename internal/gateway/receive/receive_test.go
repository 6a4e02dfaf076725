package receive

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/admission"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/rest"
	"github.com/pawlq/pawl/internal/task"
)

// A stream may end while another goroutine still receives from it. Memory that is granted after that is released.
func TestMemoryGrantedAfterTheEnd(t *testing.T) {
	room := admission.NewMemoryPool(1000)
	in := &Receiver{Stream: context.Background(), ns: "a", timer: time.NewTimer(time.Hour)}
	if err := in.reserve(&in.held, room, 10); err != nil {
		t.Fatal(err)
	}
	in.Close()
	if n, _ := room.InUse(); n != 0 {
		t.Errorf("%d bytes are in use after Close", n)
	}
	if err := in.reserve(&in.held, room, 10); !errors.Is(err, context.Canceled) {
		t.Errorf("reserve after Close: %v, want %v", err, context.Canceled)
	}
	if n, _ := room.InUse(); n != 0 {
		t.Errorf("%d bytes are in use after a failed reserve", n)
	}
}

// The reason for a missing message is what happened first: the stream was cut off, the caller closed it, or the caller left.
func TestReasonsForNoMessage(t *testing.T) {
	gone, leave := context.WithCancel(t.Context())
	leave()
	broken := errors.New("reset by peer")
	for _, c := range []struct {
		b    *Receiver
		err  error
		want error
	}{
		{&Receiver{Stream: t.Context()}, io.EOF, io.EOF}, {&Receiver{Stream: t.Context()}, io.ErrUnexpectedEOF, task.ErrInvalidArgument},
		{&Receiver{Stream: t.Context()}, broken, broken}, {&Receiver{Stream: t.Context()}, broken, context.Canceled},
		{&Receiver{Stream: gone},
			io.EOF, io.EOF}, {&Receiver{Stream: gone, cut: errPlanted}, io.EOF, errPlanted},
	} {
		if got := c.b.failed(c.err); !errors.Is(got, c.want) {
			t.Errorf("failed(%v) = %v, want %v", c.err, got, c.want)
		}
	}
	if got := (&Receiver{Stream: gone}).failed(broken); got != context.Canceled {
		t.Errorf("failed after the caller left = %v, want context.Canceled", got)
	}
}

// A small message gets no extra memory if it takes more than its length suggests. A large one gets it once, after waiting for it if needed.
func TestExtraMemory(t *testing.T) {
	for most, large := range map[int]bool{contract.SmallMessage - 1: false, contract.SmallMessage: false, contract.SmallMessage + 1: true} {
		m := NewMemory()
		in := &Receiver{memory: m, errors: asStatus{}, Stream: t.Context(), ns: "a", largest: most, timer: time.NewTimer(time.Hour)}
		err := in.reserveExtra()
		taken, _ := m.Extra.InUse()
		if large && (err != nil || taken != contract.MaxExtra || in.extra == nil) || !large &&
			(!strings.Contains(fmt.Sprint(err), "so many small parts") || taken != 0) {
			t.Errorf("message of up to %d bytes: %v, %d bytes of extra memory in use", most, err, taken)
		}
		if others, _ := m.Large.InUse(); others != 0 {
			t.Errorf("message of up to %d bytes: %d bytes of memory for large messages in use", most, others)
		}
		if in.Close(); in.extra != nil {
			t.Error("extra memory was kept after Close")
		}
	}
}

// asStatus converts the errors of a receiver.
type asStatus struct{}

func (asStatus) Status(_ context.Context, err error) error {
	return status.Error(codes.InvalidArgument, err.Error())
}

// framed returns a message as it arrives over the wire.
func framed(flag byte, raw []byte) []byte {
	return append(append([]byte{flag}, binary.BigEndian.AppendUint32(nil, uint32(len(raw)))...), raw...)
}

// The single message of a unary call is read whole, or refused with the reason.
func TestMessageOfUnaryCall(t *testing.T) {
	marshal := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	good, broken := marshal(&pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "a"}}), errors.New("reset by peer")
	ofSize := func(n int) []byte {
		spec := &pawlv1.TaskSpec{Type: "a", Payload: make([]byte, n-20)}
		for ; proto.Size(&pawlv1.EnqueueRequest{Task: spec}) < n; spec.Payload = append(spec.Payload, 0) {
		}
		return marshal(&pawlv1.EnqueueRequest{Task: spec})
	}
	for _, c := range []struct {
		what  string
		wire  *scriptedWire
		most  int
		words string // expected in the error
	}{
		{"a message", &scriptedWire{b: framed(0, good)}, contract.MaxMessage, ""},
		{"none", &scriptedWire{}, contract.MaxMessage, "message: none came"},
		{"a broken stream", &scriptedWire{fails: broken}, contract.MaxMessage, "reset by peer"},
		{"half a head", &scriptedWire{b: []byte{0, 0}}, contract.MaxMessage, "did not arrive in full"},
		{"half a message", &scriptedWire{b: framed(0, good)[:7]}, contract.MaxMessage, "did not arrive in full"},
		{"half a large one", &scriptedWire{b: framed(0, ofSize(100_000))[:50_000]}, contract.MaxMessage, "did not arrive in full"},
		{"two", &scriptedWire{b: append(framed(0, good), framed(0, good)...)}, contract.MaxMessage, "a second one arrived"},
		{"one, and a broken stream", &scriptedWire{b: framed(0, good), fails: broken}, contract.MaxMessage, "reset by peer"},
		{"no message", &scriptedWire{b: framed(0, []byte{0, 1})}, contract.MaxMessage, "message: "},
		{"no large message", &scriptedWire{b: framed(0, make([]byte, 100_000))}, contract.MaxMessage, "invalid field number"},
		{"a large one with no text in it", &scriptedWire{b: framed(0, append(ofSize(100_000), 0x0a, 3, 0x0a, 1, 0xff))},
			contract.MaxMessage, "UTF-8"},
		{"a packed one", &scriptedWire{b: framed(1, pack(t, good)), packed: "gzip"}, contract.MaxMessage, ""},
		{"one that is said to be packed", &scriptedWire{b: framed(1, good)}, contract.MaxMessage, "is marked as compressed"},
		{"one that is packed in a way that nobody knows", &scriptedWire{b: framed(1, good), packed: "zip"}, contract.MaxMessage,
			"is marked as compressed"},
		{"one that could be packed", &scriptedWire{b: framed(0, good), packed: "zip"}, contract.MaxMessage, ""},
		{"another flag", &scriptedWire{b: framed(2, good), packed: "gzip"}, contract.MaxMessage, "is marked as compressed"},
		{"a small one, as large as may be", &scriptedWire{b: framed(0, ofSize(contract.SmallMessage))}, contract.SmallMessage, ""},
		{"a larger one", &scriptedWire{b: framed(0, ofSize(contract.SmallMessage+1))}, contract.SmallMessage, "more than 16384 bytes"},
		{"a packed one that is larger", &scriptedWire{b: framed(1, pack(t, ofSize(contract.SmallMessage+1))), packed: "gzip"},
			contract.SmallMessage, "more than 16384 bytes"},
		{"a large one", &scriptedWire{b: framed(0, ofSize(1_000_000))}, contract.MaxMessage, ""},
	} {
		m := NewMemory()
		in := &Receiver{memory: m, errors: asStatus{}, Stream: t.Context(), wire: c.wire, ns: "a", largest: c.most}
		into := &pawlv1.EnqueueRequest{}
		err := in.Only(into)
		if (err == nil) != (c.words == "") || err != nil && !strings.Contains(err.Error(), c.words) || err == nil &&
			into.GetTask().GetType() != "a" {
			t.Errorf("%s: %v, want %q; got %.100s", c.what, err, c.words, into)
		}
		in.Close()
		for name, room := range map[string]*admission.MemoryPool{"large": m.Large, "extra": m.Extra} {
			if n, _ := room.InUse(); n != 0 {
				t.Errorf("%s: %d bytes of %s memory are in use at the end", c.what, n, name)
			}
		}
		if n := c.wire.taken.n; n != 0 {
			t.Errorf("%s: %d buffers are not freed at the end", c.what, n)
		}
	}
}

// In a stream each message has its own memory. It is released when the next message is read, unless it is kept. Only protobuf messages
// can be read.
func TestMemoryOfEachMessage(t *testing.T) {
	raw, err := proto.Marshal(&pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "a", Payload: make([]byte, 1_000_000)}})
	if err != nil {
		t.Fatal(err)
	}
	small, err := proto.Marshal(&pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	m := NewMemory()
	in := &Receiver{memory: m, errors: asStatus{}, Stream: t.Context(), ns: "a", largest: contract.MaxMessage,
		wire: &scriptedWire{b: slices.Concat(framed(0, small), framed(0, raw), framed(0, raw), framed(0, small), framed(0, raw))}}
	made := weigh(t, &pawlv1.EnqueueRequest{}, raw)
	taken := func(what string, want int) {
		t.Helper()
		if n, _ := m.Large.InUse(); n != int64(want) {
			t.Errorf("%s: %d bytes are in use, want %d", what, n, want)
		}
	}
	next := func() {
		t.Helper()
		if err := in.Next(&pawlv1.EnqueueRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	next()
	taken("a small message", 0)
	exact := &Receiver{memory: m, errors: asStatus{}, Stream: t.Context(), ns: "a", largest: contract.MaxMessage,
		wire: &scriptedWire{b: framed(0, append([]byte{10, 0xfd, 0x7f}, make([]byte, contract.SmallMessage-3)...))}}
	if err := exact.Next(&pawlv1.EnqueueRequest{}); err == nil || exact.held != nil {
		t.Errorf("malformed message of the maximum small size: %v, took memory: %t", err, exact.held != nil)
	}
	next()
	taken("a large one", made)
	next()
	taken("another instead", made)
	kept := in.Keep()
	next()
	taken("one that is kept, and a small one", made)
	next()
	taken("one that is kept, and another", 2*made)
	in.empty()
	taken("the one that is kept", made)
	kept.Give()
	taken("none", 0)
	if err := in.Next(&pawlv1.EnqueueRequest{}); !errors.Is(err, io.EOF) {
		t.Errorf("Next at the end: %v, want EOF", err)
	}
	parts, err := proto.Marshal(manyOf(1000, func(int) *pawlv1.TaskSpec { return &pawlv1.TaskSpec{Type: "a", Headers: manyHeaders(64)} }))
	if err != nil {
		t.Fatal(err)
	}
	of := &Receiver{memory: m, errors: asStatus{}, Stream: t.Context(), ns: "a", largest: contract.MaxMessage,
		wire: &scriptedWire{b: framed(0, parts)}}
	if err := of.Next(&pawlv1.EnqueueBatchRequest{}); err != nil {
		t.Fatal(err)
	}
	expected := len(parts) + contract.MemoryFor(len(parts)) + min(len(parts), fieldRoom)
	if extra, _ := m.Extra.InUse(); extra != int64(weigh(t, &pawlv1.EnqueueBatchRequest{}, parts)-expected) {
		t.Errorf("message of many parts took %d bytes in addition to the expected %d, and weighs %d", extra, expected,
			weigh(t, &pawlv1.EnqueueBatchRequest{}, parts))
	}
	if held, _ := m.Large.InUse(); held != int64(expected) {
		t.Errorf("one of many parts holds %d bytes, want the %d that are expected of it", held, expected)
	}
	of.Close()
	if err := in.readLarge(3, false, "no message"); err == nil || !strings.Contains(err.Error(), "string is no message") {
		t.Errorf("readLarge into a string: %v", err)
	}
	if _, err := New(t.Context(), "a", contract.MaxMessage, m, asStatus{}); err == nil {
		t.Error("New accepted a context without a stream")
	}
}

// Both ends of a wait count: a message that arrives in time is accepted, and a late one is refused as late.
func TestMessageTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire, late := &scriptedWire{}, errors.New("x")
		in := &Receiver{memory: NewMemory(), errors: asStatus{}, Stream: t.Context(), wire: wire}
		came := in.within(time.Second)
		pass(time.Second - 1)
		if err := came(late); err != late || wire.ended != nil {
			t.Errorf("message in time: %v, stream ended with %v", err, wire.ended)
		}
		pass(time.Minute)
		if wire.ended != nil {
			t.Errorf("the stream of a message in time was ended with %v", wire.ended)
		}
		for what, want := range map[string]string{"": "did not arrive in full within 1s", "for room": "too many large requests"} {
			in.cut = nil
			came = in.within(time.Second)
			in.setWaiting(what != "")
			pass(time.Second + 1)
			if err := came(nil); err == nil || !strings.Contains(err.Error(), want) || wire.ended == nil ||
				!strings.Contains(wire.ended.Message(), want) {
				t.Errorf("late message, waiting %s: %v, stream ended with %v", what, err, wire.ended)
			}
			in.setWaiting(false)
		}
		wire.ended = nil
		if err := in.reserve(&in.held, in.memory.Large, 10); err != nil { // its deadline had already passed
			t.Errorf("reserve after the deadline: %v", err)
		}
		if pass(rest.BodyTimeout + 1); wire.ended != nil {
			t.Errorf("an ended stream was ended again with %v", wire.ended)
		}
		in.cut = nil
		came = in.within(time.Second)
		in.timer.Stop() // its time has passed, but it has not begun to end the stream
		if err := came(late); err != late {
			t.Errorf("message just in time: %v", err)
		}
		in.timer.Reset(time.Second)
		if pass(2 * time.Second); in.cut != nil || wire.ended != nil {
			t.Errorf("the stream of a message just in time was ended with %v", wire.ended)
		}
		in.Close()
	})
}

// A long message is refused with gRPC's own code, and with Pawl's in the details.
func TestLongMessages(t *testing.T) {
	err := tooLong(7)
	st, ok := status.FromError(err)
	if e, known := task.AsError(err); !ok || st.Code() != codes.ResourceExhausted || len(st.Details()) != 1 || !known ||
		e.Code != task.CodePayloadTooLarge || e.Field != "message" || !strings.Contains(st.Message(), "more than 7 bytes") {
		t.Errorf("tooLong = %v, %v", st, err)
	}
}

// pass lets time pass in the synctest bubble, where time is fake.
func pass(d time.Duration) { time.Sleep(d) }

var errPlanted = task.Unavailable(time.Second, "planted")

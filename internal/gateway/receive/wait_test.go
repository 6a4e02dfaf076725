package receive

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/admission"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/rest"
)

// slowWire is a wire on which heads and the first piece of each message take their time. Its end ends the stream's context, as gRPC does.
type slowWire struct {
	*scriptedWire
	head, piece time.Duration
	onPiece     func()
	end         context.CancelFunc
}

func (w *slowWire) ReadMessageHeader(head []byte) error {
	pass(w.head)
	return w.scriptedWire.ReadMessageHeader(head)
}

func (w *slowWire) Read(n int) (mem.BufferSlice, error) {
	if w.onPiece != nil {
		w.onPiece()
	}
	pass(w.piece)
	w.piece = 0
	return w.scriptedWire.Read(n)
}

func (w *slowWire) WriteStatus(st *status.Status) error {
	w.end()
	return w.scriptedWire.WriteStatus(st)
}

// largeMessage returns a message of more than one piece, and how many bytes are reserved while it is read.
func largeMessage(t *testing.T) (raw []byte, room int) {
	t.Helper()
	raw, err := proto.Marshal(&pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "a", Payload: make([]byte, 1_000_000)}})
	if err != nil {
		t.Fatal(err)
	}
	return raw, len(raw) + contract.MemoryFor(len(raw)) + min(len(raw), fieldRoom) + min(len(raw), inFlight)
}

// The first message of a stream must come soon. Later ones may take long to begin, and then must arrive in time.
func TestStreamMessageTimeout(t *testing.T) {
	raw, _ := largeMessage(t)
	large, packed := framed(0, raw), framed(1, pack(t, raw)) // the packed one is small
	const long = rest.BodyTimeout + time.Second
	for _, c := range []struct {
		what             string
		message          []byte
		first, second, b time.Duration // until the heads come, and the second message behind its head
		want             string
	}{
		{"all in time", large, rest.BodyTimeout - 1, rest.BodyTimeout - 1, 0, ""},
		{"a late beginning", large, long, 0, 0, "did not arrive in full"},
		{"a pause", large, 0, 10 * long, 0, ""},
		{"a pause, and a slow message", large, 0, 10 * long, long, "did not arrive in full"},
		{"a pause, and one that is not too slow", large, 0, 10 * long, rest.BodyTimeout - 1, ""},
		{"a pause, and a slow packed message", packed, 0, 10 * long, long, "did not arrive in full"},
		{"a pause, and a packed one that is not too slow", packed, 0, 10 * long, rest.BodyTimeout - 1, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, end := context.WithCancel(t.Context())
			defer end()
			wire := &slowWire{scriptedWire: &scriptedWire{b: slices.Concat(c.message, c.message), packed: "gzip"}, head: c.first, end: end}
			in := &Receiver{memory: NewMemory(), errors: asStatus{}, Stream: ctx, ns: "a", largest: contract.MaxMessage, wire: wire}
			defer in.Close()
			err := in.Next(&pawlv1.EnqueueRequest{})
			if err == nil {
				wire.head, wire.piece = c.second, c.b
				err = in.Next(&pawlv1.EnqueueRequest{})
			}
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) ||
				(wire.ended != nil) != (c.want != "") {
				t.Errorf("%s: %v, want %q; ended with %v", c.what, err, c.want, wire.ended)
			}
		})
	}
}

// The sender of a large message is not to blame for a wait for memory: its time starts over when there is some. If there is none in time,
// the message is refused for that, and nothing of it is read.
func TestWaitsForMemory(t *testing.T) {
	raw, room := largeMessage(t)
	for _, c := range []struct {
		what        string
		free, piece time.Duration // until there is memory, and until the message has come then
		want        string
		read        bool
	}{
		{"in time", rest.BodyTimeout - time.Second, rest.BodyTimeout - time.Second, "", true},
		{"too slow once there is memory", time.Second, rest.BodyTimeout + time.Second, "did not arrive in full", true},
		{"no memory", rest.BodyTimeout + time.Second, 0, "too many large requests", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			pool := admission.NewMemoryPool(2 * int64(room))
			ctx, end := context.WithCancel(t.Context())
			defer end()
			for ns, free := range map[string]time.Duration{"x": c.free, "y": time.Hour} {
				taken, err := pool.Reserve(t.Context(), ns, int64(room))
				if err != nil {
					t.Fatal(err)
				}
				time.AfterFunc(free, taken.Release)
			}
			wire := &slowWire{scriptedWire: &scriptedWire{b: framed(0, raw)}, piece: c.piece, end: end}
			wire.onPiece = func() {
				if n, _ := pool.InUse(); n != 2*int64(room) {
					t.Errorf("%s: %d bytes are reserved while a message of %d is read, want %d and as many", c.what, n, len(raw), room)
				}
			}
			in := &Receiver{memory: &Memory{Large: pool, Extra: pool}, errors: asStatus{}, Stream: ctx, ns: "a",
				largest: contract.MaxMessage, wire: wire}
			err := in.Next(&pawlv1.EnqueueRequest{})
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.what, err, c.want)
			}
			if (len(wire.asked) > 0) != c.read {
				t.Errorf("%s: pieces %v were read", c.what, wire.asked)
			}
			in.Close()
			pass(time.Hour)
			if n, _ := pool.InUse(); n != 0 {
				t.Errorf("%s: %d bytes are taken in the end", c.what, n)
			}
		})
	}
}

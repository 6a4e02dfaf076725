package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"

	"github.com/pawlq/pawl/internal/admission"

	_ "google.golang.org/grpc/encoding/gzip"

	// which callers may pack messages with
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/rest"
	"github.com/pawlq/pawl/internal/task"
)

// messageHead is what comes before each message: whether it is packed, and how long it is.
const messageHead = 5

const (
	// maxRoom bounds the bytes of memory that large requests take, on their way and decoded, until their calls end: by their lengths, with
	// what may be expected to be made of them. Those of one namespace have half of it.
	maxRoom = 128 << 20
	// maxExtraRoom bounds what few of them take beyond that, contract.MaxExtra each.
	maxExtraRoom = 96 << 20
)

// wire is what the receiver needs of gRPC's stream below grpc.ServerStream, which takes a message whole and for as long as it may last: here
// its announced length is known before it is taken, and what takes too long can be ended from outside. It is what gRPC's own
// parser of messages reads from.
type wire interface {
	// ReadMessageHeader fills head, or returns io.EOF if there is no other message.
	ReadMessageHeader(head []byte) error
	// Read reads n bytes. Their sender may send as many from then on.
	Read(n int) (mem.BufferSlice, error)
	RecvCompress() string
	// WriteStatus ends the stream. What waits for it then fails. Only the first has an effect.
	WriteStatus(*status.Status) error
}

// receiver receives the messages of one call of gRPC. One goroutine receives; the one that ends the call closes it, perhaps while another receives.
type receiver struct {
	g       *Gateway
	ctx     context.Context // of the stream
	wire    wire
	ns      string
	largest int
	begun   bool        // a message was asked for
	timer   *time.Timer // ends the stream if the message at hand does not come in time

	mu      sync.Mutex
	waiting bool  // for room
	cut     error // the stream was ended for this
	closed  bool
	// The room of the message at hand; nil: it took none.
	held, extra *admission.Reservation
}

func (g *Gateway) newReceiver(ctx context.Context, c *call, n need) (*receiver, error) {
	w, ok := grpc.ServerTransportStreamFromContext(ctx).(wire)
	if !ok {
		return nil, errors.New("the streams of this version of gRPC can't be read: see receiver.go")
	}
	in := &receiver{g: g, ctx: ctx, wire: w, ns: c.namespace, largest: contract.MaxMessage}
	if n.reach == public {
		in.largest = contract.SmallMessage
	}
	return in, nil
}

// only receives the one message of a call that has one, and its end.
func (b *receiver) only(into any) error {
	came := b.within(rest.BodyTimeout)
	err := b.take(into)
	switch {
	case err == nil:
		err = b.end()
	case errors.Is(err, io.EOF):
		err = task.Invalid("message", "none came")
	}
	return came(err)
}

// end waits for the end of the caller's messages.
func (b *receiver) end() error {
	var head [messageHead]byte
	switch err := b.wire.ReadMessageHeader(head[:]); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return b.failed(err)
	}
	return task.Invalid("message", "a second one came, and this call has one")
}

// next receives the next message of a call that may have many; io.EOF: there is none. The first must come soon. The others may be long in
// coming, but once they are on their way they must come too.
func (b *receiver) next(into any) error {
	if b.begun {
		return b.take(into)
	}
	came := b.within(rest.BodyTimeout)
	return came(b.take(into))
}

// close ends the call: nobody uses its messages any more.
func (b *receiver) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.giveRoom()
}

// empty forgets the message at hand, which its reader has done with.
func (b *receiver) empty() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.giveRoom()
}

// heldRoom is the room of a message that is used when the next one comes. The zero heldRoom is none.
type heldRoom struct{ held, extra *admission.Reservation }

// keep leaves the room of the message at hand to the caller, who gives it back when the message is not used any more.
func (b *receiver) keep() heldRoom {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := heldRoom{b.held, b.extra}
	b.held, b.extra = nil, nil
	return kept
}

func (r heldRoom) give() {
	r.held.Release()
	r.extra.Release()
}

func (b *receiver) giveRoom() {
	b.held.Release()
	b.extra.Release()
	b.held, b.extra = nil, nil
}

func (b *receiver) take(into any) error {
	b.empty()
	first := !b.begun
	b.begun = true
	var head [messageHead]byte
	if err := b.wire.ReadMessageHeader(head[:]); err != nil {
		return b.failed(err)
	}
	size, packed := binary.BigEndian.Uint32(head[1:]), head[0] == 1
	switch {
	case int64(size) > int64(b.largest):
		return tooLong(b.largest)
	case head[0] > 1 || packed && encoding.GetCompressor(b.wire.RecvCompress()) == nil:
		return task.Invalid("message", "says of itself that it is packed, and not how")
	case first || size <= contract.SmallMessage:
		return b.read(int(size), packed, into)
	}
	came := b.within(rest.BodyTimeout)
	return came(b.read(int(size), packed, into))
}

// read reads a message of so many bytes.
func (b *receiver) read(size int, packed bool, into any) error {
	if packed || size > contract.SmallMessage {
		return b.readLarge(size, packed, into)
	}
	data, err := b.wire.Read(size)
	if err != nil {
		return b.failed(err)
	}
	defer data.Free()
	if err := encoding.GetCodecV2(grpcproto.Name).Unmarshal(data, into); err != nil {
		return task.Invalid("message", "%v", err)
	}
	return nil
}

// readLarge reads a message that is large, or may be: what a packed one will be is not known before.
func (b *receiver) readLarge(size int, packed bool, into any) error {
	m, ok := into.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no message", into)
	}
	whole := size
	if packed {
		whole = b.largest
	}
	room := whole + contract.MemoryFor(whole) + min(whole, fieldRoom)
	d := &decoder{into: m, shape: shapeOf(m.ProtoReflect()), most: b.largest, room: room, extra: b.reserveExtra}
	if b.largest > contract.SmallMessage {
		if err := b.reserve(&b.held, b.g.large, room+min(size, inFlight)); err != nil {
			return err
		}
	}
	w := &wireReader{wire: b.wire, left: size}
	defer w.close()
	err := d.readFrom(w, packed, b.wire.RecvCompress())
	switch {
	case w.failed != nil:
		return b.failed(w.failed)
	case err != nil:
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held.Shrink(int64(d.made))
	b.extra.Shrink(int64(d.made - room))
	return nil
}

// inFlight is what gRPC has of a message at most while it is read: the piece that is asked for, and the window of a stream.
const inFlight = pieceSize + streamWindow

// reserve waits for room.
func (b *receiver) reserve(held **admission.Reservation, room *admission.MemoryPool, n int) error {
	b.setWaiting(true)
	defer b.setWaiting(false)
	got, err := room.Reserve(b.ctx, b.ns, int64(n))
	if err == nil {
		err = b.hold(held, got)
	}
	if err != nil {
		return b.failed(err)
	}
	if b.timer.Stop() { // the sender is not to blame for the wait
		b.timer.Reset(rest.BodyTimeout)
	}
	return nil
}

// hold keeps room for the message at hand.
func (b *receiver) hold(held **admission.Reservation, got *admission.Reservation) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		got.Release()
		return context.Canceled
	}
	*held = got
	return nil
}

// reserveExtra waits for the room of a message that takes more than its length lets expect. Who has that waits for no other.
func (b *receiver) reserveExtra() error {
	if b.largest <= contract.SmallMessage {
		return contract.TooManyParts("message")
	}
	return b.reserve(&b.extra, b.g.extra, contract.MaxExtra)
}

func (b *receiver) setWaiting(to bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = to
}

// within ends the stream unless what it returns is called in time, which begins anew when there is room for the message. That returns its error, or why the stream was ended: what came too late
// must not be done.
func (b *receiver) within(d time.Duration) (came func(error) error) {
	over := false // guarded by b.mu
	b.timer = time.AfterFunc(d, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if over {
			return
		}
		b.cut = task.Invalid("message", "did not arrive whole within %s", contract.SpanText(d))
		if b.waiting {
			b.cut = contract.NoRoom()
		}
		st, _ := status.FromError(b.g.statusOf(b.ctx, b.cut))
		_ = b.wire.WriteStatus(st) // fails only if the stream has ended
	})
	return func(err error) error {
		if b.timer.Stop() {
			return err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		over = true
		if b.cut != nil {
			return b.cut
		}
		return err
	}
}

// failed is why no message came.
func (b *receiver) failed(err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.cut != nil:
		return b.cut
	case errors.Is(err, io.EOF):
		return io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		return task.Invalid("message", "did not arrive whole")
	case b.ctx.Err() != nil:
		return b.ctx.Err()
	}
	return fmt.Errorf("%w: %w", context.Canceled, err) // the connection is gone
}

// longMessage is the refusal of a message that is too long, with the code that gRPC itself has for it.
type longMessage struct{ error }

func tooLong(most int) error {
	return longMessage{&task.Error{Code: task.CodePayloadTooLarge, Field: "message", Message: task.Invalid("message", "more than %d bytes", most).Message}}
}

// Unwrap gives the refusal.
func (e longMessage) Unwrap() error { return e.error }

// GRPCStatus is what package status asks for.
func (e longMessage) GRPCStatus() *status.Status {
	said, _ := task.AsError(e.error)
	st := status.New(codes.ResourceExhausted, said.Message)
	if with, err := st.WithDetails(contract.ErrorProto(said)); err == nil {
		return with
	}
	return st
}

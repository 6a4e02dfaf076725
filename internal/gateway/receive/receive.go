// Package receive reads the messages of gRPC calls in bounded memory and time: it reserves what a large message will take before it
// reads it, decodes it piece by piece, and ends the stream of a message that does not arrive in time.
//
// It knows the types of messages only by their descriptors, and neither callers nor what a call does.
package receive

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
	_ "google.golang.org/grpc/encoding/gzip" // for clients that compress messages
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/pawlq/pawl/internal/admission"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/gateway/listen"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/rest"
	"github.com/pawlq/pawl/internal/task"
)

// messageHead is the length of the header of each message: whether it is compressed, and its length.
const messageHead = 5

const (
	// maxRoom bounds the memory, in bytes, that large requests take, from arrival to the end of their calls: their lengths and what
	// is expected to be decoded from them. A namespace may have half of it.
	maxRoom = 128 << 20
	// maxExtraRoom bounds what a few of them may take beyond that, contract.MaxExtra each.
	maxExtraRoom = 96 << 20
)

// wire is what the receiver needs of gRPC's stream below grpc.ServerStream. That receives a whole message, however long it takes;
// here the announced length is known before the message is read, and a message that takes too long can be cut off. It is what
// gRPC's own message parser reads from.
type wire interface {
	// ReadMessageHeader fills head, or returns io.EOF if there are no more messages.
	ReadMessageHeader(head []byte) error
	// Read reads n bytes. From then on the sender may send as many more.
	Read(n int) (mem.BufferSlice, error)
	RecvCompress() string
	// WriteStatus ends the stream, which fails pending reads. Only the first call has an effect.
	WriteStatus(*status.Status) error
}

// statuses converts errors to those of gRPC.
type statuses interface {
	Status(ctx context.Context, err error) error
}

// Receiver receives the messages of one gRPC call. One goroutine receives; the goroutine that ends the call closes the receiver,
// perhaps while another still receives.
type Receiver struct {
	memory  *Memory
	errors  statuses
	Stream  context.Context // the context of the stream, as gRPC began it
	wire    wire
	ns      string
	largest int
	begun   bool        // a message was requested
	timer   *time.Timer // ends the stream if the current message does not arrive in time

	mu      sync.Mutex
	waiting bool  // for memory
	cut     error // why the stream was cut off
	closed  bool
	// The memory of the current message; nil: it took none.
	held, extra *admission.Reservation
}

// Memory is what the large requests of a node may take, in bytes.
type Memory struct {
	Large *admission.MemoryPool // for large requests
	Extra *admission.MemoryPool // for those that take more than their length suggests
}

// NewMemory returns the memory of a node.
func NewMemory() *Memory {
	return &Memory{admission.NewMemoryPool(maxRoom), admission.NewMemoryPool(maxExtraRoom)}
}

// New returns the receiver of a call of gRPC in a namespace, whose context is that of the call's stream. No message may be
// larger than largest bytes. The caller must call Close at the call's end.
func New(ctx context.Context, ns string, largest int, m *Memory, errs statuses) (*Receiver, error) {
	w, ok := grpc.ServerTransportStreamFromContext(ctx).(wire)
	if !ok {
		return nil, errors.New("the streams of this version of gRPC can't be read: see receive.go")
	}
	return &Receiver{memory: m, errors: errs, Stream: ctx, wire: w, ns: ns, largest: largest}, nil
}

// Only receives the single message of a call, and the end of the client's stream. It refuses a text that is given but empty.
func (b *Receiver) Only(into any) error {
	came := b.within(rest.BodyTimeout)
	err := b.take(into)
	switch {
	case err == nil:
		err = b.end()
		if m, ok := into.(proto.Message); err == nil && ok {
			err = textsOf(m.ProtoReflect().Descriptor()).check(m.ProtoReflect())
		}
	case errors.Is(err, io.EOF):
		err = task.Invalid("message", "none came")
	}
	return came(err)
}

// end waits for the end of the client's stream.
func (b *Receiver) end() error {
	var head [messageHead]byte
	switch err := b.wire.ReadMessageHeader(head[:]); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return b.failed(err)
	}
	return task.Invalid("message", "a second one arrived, and this call takes one")
}

// Next receives the next message of a call that may have many; io.EOF: there are no more. The first must arrive soon. The others
// may take long to begin, but once begun they must arrive in time too.
func (b *Receiver) Next(into any) error {
	if b.begun {
		return b.take(into)
	}
	came := b.within(rest.BodyTimeout)
	return came(b.take(into))
}

// Close ends the call: its messages are no longer used.
func (b *Receiver) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.giveRoom()
}

// empty gives back the memory of the current message, which its reader is done with.
func (b *Receiver) empty() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.giveRoom()
}

// Held is the memory of a message that is still used when the next one is received. The zero Held holds none.
type Held struct{ held, extra *admission.Reservation }

// Keep transfers the memory of the current message to the caller, who gives it back when the message is no longer used.
func (b *Receiver) Keep() Held {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := Held{b.held, b.extra}
	b.held, b.extra = nil, nil
	return kept
}

// Give gives the memory back.
func (r Held) Give() {
	r.held.Release()
	r.extra.Release()
}

func (b *Receiver) giveRoom() {
	b.held.Release()
	b.extra.Release()
	b.held, b.extra = nil, nil
}

func (b *Receiver) take(into any) error {
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
		return task.Invalid("message", "is marked as compressed, but does not say how")
	case first || size <= contract.SmallMessage && !packed: // a packed one holds the memory of the largest while it arrives
		return b.read(int(size), packed, into)
	}
	came := b.within(rest.BodyTimeout)
	return came(b.read(int(size), packed, into))
}

// read reads a message of the given size.
func (b *Receiver) read(size int, packed bool, into any) error {
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

// readLarge reads a message that is large, or may be: the size of a compressed one is not known in advance.
func (b *Receiver) readLarge(size int, packed bool, into any) error {
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
		if err := b.reserve(&b.held, b.memory.Large, room+min(size, inFlight)); err != nil {
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
	b.held.Shrink(int64(min(d.made, room))) // not what gRPC held meanwhile, even if the message took more than was expected
	b.extra.Shrink(int64(d.made - room))
	return nil
}

// inFlight is the most that gRPC holds of a message while it is read: the piece being read, and the window of a stream.
const inFlight = pieceSize + listen.StreamWindow

// reserve waits for memory.
func (b *Receiver) reserve(held **admission.Reservation, room *admission.MemoryPool, n int) error {
	b.setWaiting(true)
	defer b.setWaiting(false)
	got, err := room.Reserve(b.Stream, b.ns, int64(n))
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

// hold assigns memory to the current message.
func (b *Receiver) hold(held **admission.Reservation, got *admission.Reservation) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		got.Release()
		return context.Canceled
	}
	*held = got
	return nil
}

// reserveExtra waits for memory for a message that takes more than its length suggests. A message that has it waits for no other
// memory.
func (b *Receiver) reserveExtra() error {
	if b.largest <= contract.SmallMessage {
		return contract.TooManyParts("message")
	}
	return b.reserve(&b.extra, b.memory.Extra, contract.MaxExtra)
}

func (b *Receiver) setWaiting(to bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = to
}

// within ends the stream unless the function it returns is called within d; the time starts over once there is memory for the
// message. That function returns its argument, or the reason why the stream was cut off: a message that arrived too late must not
// be executed.
func (b *Receiver) within(d time.Duration) (came func(error) error) {
	over := false // guarded by b.mu
	b.timer = time.AfterFunc(d, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if over {
			return
		}
		b.cut = task.Invalid("message", "did not arrive in full within %s", humanize.DurationText(d))
		if b.waiting {
			b.cut = contract.NoRoom()
		}
		st, _ := status.FromError(b.errors.Status(b.Stream, b.cut))
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

// failed returns why no message was received.
func (b *Receiver) failed(err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.cut != nil:
		return b.cut
	case errors.Is(err, io.EOF):
		return io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		return task.Invalid("message", "did not arrive in full")
	case b.Stream.Err() != nil:
		return b.Stream.Err()
	}
	return fmt.Errorf("%w: %w", context.Canceled, err) // the connection is gone
}

// longMessage is the refusal of a message that is too long, with the same code as gRPC's own.
type longMessage struct{ error }

func tooLong(most int) error {
	return longMessage{&task.Error{Code: task.CodePayloadTooLarge, Field: "message", Message: task.Invalid("message", "more than %d bytes",
		most).Message}}
}

// Unwrap returns the refusal.
func (e longMessage) Unwrap() error { return e.error }

// GRPCStatus implements the interface of package status.
func (e longMessage) GRPCStatus() *status.Status {
	refusal, _ := task.AsError(e.error)
	st := status.New(codes.ResourceExhausted, refusal.Message)
	if with, err := st.WithDetails(contract.ErrorProto(refusal)); err == nil {
		return with
	}
	return st
}

package receive

import (
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

const (
	// pieceSize is how much is read from the transport at a time.
	pieceSize = 256 << 10
	// firstRoom is how much a decoder reads before it decodes. The buffer grows for a field that is longer.
	firstRoom = 64 << 10
	// fieldRoom is the expected maximum of a field: a task with its payload and follow-ups.
	fieldRoom = 5 << 19
)

// firstRooms are reused: most large messages are little longer than one, so a new one each time would double the garbage.
var firstRooms = sync.Pool{New: func() any { return new([firstRoom]byte) }}

// decoder decodes a message as its bytes arrive, some whole fields at a time: concatenating the fields of protobuf messages merges
// the messages. So the whole encoded message is never in memory along with the decoded one, nor is its compressed form.
type decoder struct {
	into  proto.Message
	shape *shape
	most  int          // of the message, in bytes
	room  int          // memory reserved, in bytes
	extra func() error // waits for contract.MaxExtra more; nil: it has been reserved already

	buf  []byte // received but not decoded yet
	came int    // bytes of the message received so far
	made int    // estimate of the memory of what was decoded, in bytes
}

// readFrom decodes everything it reads, decompressing it if packed.
func (d *decoder) readFrom(from io.Reader, packed bool, how string) error {
	unpacked := from
	if packed {
		var err error
		if unpacked, err = encoding.GetCompressor(how).Decompress(from); err != nil {
			return task.Invalid("message", "can't be decompressed: %v", err)
		}
	}
	first := firstRooms.Get().(*[firstRoom]byte)
	defer firstRooms.Put(first) // decoding copies
	d.buf, d.made = first[:0], d.shape.size
	for {
		n, err := unpacked.Read(d.buf[len(d.buf):cap(d.buf)])
		d.buf = d.buf[:len(d.buf)+n]
		ended := errors.Is(err, io.EOF)
		switch d.came += n; {
		case d.came > d.most:
			return tooLong(d.most)
		case err != nil && !ended:
			return task.Invalid("message", "can't be decompressed: %v", err)
		case ended || len(d.buf) == cap(d.buf):
			if err := d.decode(); err != nil {
				return err
			}
		}
		if ended {
			return d.end()
		}
	}
}

// end refuses a message that ends within a field.
func (d *decoder) end() error {
	if len(d.buf) > 0 {
		return task.Invalid("message", "%v", io.ErrUnexpectedEOF)
	}
	return nil
}

// decode decodes the fields that have arrived completely, and makes room for the next.
func (d *decoder) decode() error {
	whole, next, err := wholeFields(d.buf, d.most)
	if err != nil {
		return err
	}
	inner, err := d.shape.weigh(d.buf[:whole], 0)
	if err != nil {
		return err
	}
	d.made += inner
	if err := d.reserve(max(cap(d.buf), next)); err != nil {
		return err
	}
	if err := decoding.Unmarshal(d.buf[:whole], d.into); err != nil {
		return task.Invalid("message", "%v", err)
	}
	rest := d.buf[whole:]
	if next > cap(d.buf) {
		d.buf = make([]byte, 0, next)
	}
	d.buf = append(d.buf[:0], rest...)
	return nil
}

var decoding = proto.UnmarshalOptions{Merge: true, RecursionLimit: maxNesting}

// reserve reserves memory for what was decoded, and for the given number of bytes not yet decoded.
func (d *decoder) reserve(unread int) error {
	if d.made+unread <= d.room {
		return nil
	}
	if d.extra == nil {
		return contract.TooManyParts("message")
	}
	if err := d.extra(); err != nil {
		return err
	}
	d.room, d.extra = d.room+contract.MaxExtra, nil
	return d.reserve(unread)
}

// wholeFields returns the size of the complete fields at the beginning of b, and that of the next field. No field has more than
// most.
func wholeFields(b []byte, most int) (whole, next int, err error) {
	for whole < len(b) {
		size := fieldSize(b[whole:])
		switch {
		case size < 0:
			return 0, 0, task.Invalid("message", "%v", protowire.ParseError(size))
		case size > most:
			return 0, 0, tooLong(most)
		case size > len(b)-whole:
			return whole, size, nil
		}
		whole += size
	}
	return whole, 0, nil
}

// fieldSize returns the size of the first field, or an error of protowire. If too little has arrived to tell, it returns twice what
// has.
func fieldSize(b []byte) int {
	number, kind, head := protowire.ConsumeTag(b)
	n := head
	if kind == protowire.BytesType {
		var length uint64
		if length, n = protowire.ConsumeVarint(b[head:]); n > 0 {
			return head + n + int(min(length, contract.MaxMessage+1))
		}
	} else if head > 0 {
		if n = protowire.ConsumeFieldValue(number, kind, b[head:]); n > 0 {
			return head + n
		}
	}
	if errors.Is(protowire.ParseError(n), io.ErrUnexpectedEOF) {
		return 2 * len(b)
	}
	return n
}

// wireReader reads the bytes of a message, a piece at a time.
type wireReader struct {
	wire   wire
	left   int
	piece  *mem.Reader // nil: none
	failed error       // of the transport
}

func (w *wireReader) Read(b []byte) (int, error) {
	if w.piece == nil || w.piece.Remaining() == 0 {
		if w.left == 0 {
			return 0, io.EOF
		}
		data, err := w.wire.Read(min(w.left, pieceSize))
		if err != nil {
			w.failed = err
			return 0, err
		}
		w.left -= data.Len()
		w.piece = data.Reader()
		data.Free()
	}
	return w.piece.Read(b)
}

func (w *wireReader) close() {
	if w.piece != nil {
		_ = w.piece.Close()
		w.piece = nil
	}
}

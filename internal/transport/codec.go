package transport

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/mem"

	"github.com/pawlq/pawl/internal/grpcpool"
)

// Kinds of frames.
const (
	kindBody  byte = iota + 1 // data of this package's user
	kindError                 // a handler's error, the last frame of its side
	kindHead                  // the first frame of a snapshot
	kindChunk                 // a piece of a snapshot, with its checksum
	kindEnd                   // the totals of a snapshot
	kindLast                  // one more than the last kind
)

// frame is one message on the wire: a byte for its kind, and its body.
type frame struct {
	kind byte
	body []byte
	room *[]byte // the buffer of body, if it goes back to the pool once written
	left bool    // it was passed to a connection: from here on it may have arrived
}

// kinds holds the first byte of each kind of frame, shared by all frames.
var kinds = func() (b [kindLast]mem.SliceBuffer) {
	for kind := range b {
		b[kind] = mem.SliceBuffer{byte(kind)}
	}
	return b
}()

// pool lends the buffers of frames used once: some small messages, a chunk, a full frame.
var pool = grpcpool.Pool

var errEmptyFrame = errors.New("empty frame")

// codec writes frames unchanged. gRPC encodes a message after it has a connection for it and before it writes the first byte,
// so encoding marks the moment from which the message may arrive.
type codec struct{}

// Name implements encoding.CodecV2.
func (codec) Name() string { return "pawl" }

// Marshal implements encoding.CodecV2.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("encode %T: not a frame", v)
	}
	f.left = true
	body := mem.Buffer(mem.SliceBuffer(f.body))
	if f.room != nil {
		body = mem.NewBuffer(f.room, pool)
	}
	return mem.BufferSlice{kinds[f.kind], body}, nil
}

// Unmarshal implements encoding.CodecV2.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("decode %T: not a frame", v)
	}
	b := data.Materialize()
	if len(b) == 0 {
		return errEmptyFrame
	}
	f.kind, f.body = b[0], b[1:]
	return nil
}

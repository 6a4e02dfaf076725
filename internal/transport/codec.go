package transport

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/mem"

	"github.com/pawlq/pawl/internal/grpcpool"
)

// Kinds of frames.
const (
	kindBody  byte = iota + 1 // what the user of this package sends
	kindError                 // a handler's error, the last frame of its side
	kindHead                  // the first frame of a snapshot
	kindChunk                 // a piece of a snapshot, with its checksum
	kindEnd                   // what all pieces of a snapshot should come to
	kindLast                  // one more than the last
)

// frame is one message on the wire: a byte that says what it is, and its body.
type frame struct {
	kind byte
	body []byte
	room *[]byte // where body lies, if that goes back to the pool when it is written
	left bool    // it was given to a connection: from here on it may have arrived
}

// kinds are the first bytes of frames, shared by all.
var kinds = func() (b [kindLast]mem.SliceBuffer) {
	for kind := range b {
		b[kind] = mem.SliceBuffer{byte(kind)}
	}
	return b
}()

// pool lends the rooms of frames that are made for one use: some small messages, a chunk, a full frame.
var pool = grpcpool.Pool

var errEmptyFrame = errors.New("empty frame")

// codec puts frames on the wire as they are. GRPC encodes a message after it has a connection for it and before it writes
// the first byte, so encoding marks the moment from which the message may arrive.
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

package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// A frame of Raft messages is a count, and that many envelopes, each
//
//	shard uvarint | length uvarint | message
//
// Decoding trusts none of these numbers: the bytes come from another machine.

// errFrame is the error for a frame of Raft messages that can't be decoded.
var errFrame = errors.New("damaged frame of raft messages")

// leastEnvelope is the size of the shortest envelope: a shard and a length of a byte each, and an empty message.
const leastEnvelope = 2

// frameSize returns an upper bound of what appendFrame appends, and caches the messages' sizes for it.
func frameSize(envelopes []Envelope) int {
	size := binary.MaxVarintLen32
	for _, e := range envelopes {
		size += 2*binary.MaxVarintLen32 + proto.Size(e.Message)
	}
	return size
}

// knownSize encodes messages whose sizes frameSize has cached.
var knownSize = proto.MarshalOptions{UseCachedSize: true}

func appendFrame(b []byte, envelopes []Envelope) ([]byte, error) {
	b = binary.AppendUvarint(b, uint64(len(envelopes)))
	for _, e := range envelopes {
		b = binary.AppendUvarint(b, uint64(e.Shard))
		b = binary.AppendUvarint(b, uint64(knownSize.Size(e.Message)))
		var err error
		if b, err = knownSize.MarshalAppend(b, e.Message); err != nil {
			return nil, fmt.Errorf("raft message of shard %d: %w", e.Shard, err)
		}
	}
	return b, nil
}

func parseFrame(b []byte) ([]Envelope, error) {
	count, b, err := cutUvarint(b, "count")
	if err != nil {
		return nil, err
	}
	if count > uint64(len(b)/leastEnvelope) {
		return nil, fmt.Errorf("%w: it claims %d messages in %d bytes", errFrame, count, len(b))
	}
	envelopes := make([]Envelope, count)
	for i := range envelopes {
		if envelopes[i], b, err = cutEnvelope(b); err != nil {
			return nil, err
		}
	}
	if len(b) > 0 {
		return nil, fmt.Errorf("%w: %d bytes after its last message", errFrame, len(b))
	}
	return envelopes, nil
}

func cutEnvelope(b []byte) (Envelope, []byte, error) {
	shard, b, err := cutUvarint(b, "shard")
	if err != nil {
		return Envelope{}, nil, err
	}
	if shard > math.MaxUint32 {
		return Envelope{}, nil, fmt.Errorf("%w: shard %d is above %d", errFrame, shard, uint32(math.MaxUint32))
	}
	length, b, err := cutUvarint(b, "length")
	if err != nil {
		return Envelope{}, nil, err
	}
	if length > uint64(len(b)) {
		return Envelope{}, nil, fmt.Errorf("%w: a message of %d bytes in the last %d", errFrame, length, len(b))
	}
	m := new(pb.Message)
	if err := proto.Unmarshal(b[:length], m); err != nil {
		return Envelope{}, nil, fmt.Errorf("%w: message of shard %d: %w", errFrame, shard, err)
	}
	return Envelope{Shard: uint32(shard), Message: m}, b[length:], nil
}

func cutUvarint(b []byte, what string) (uint64, []byte, error) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, fmt.Errorf("%w: no %s in its last %d bytes", errFrame, what, len(b))
	}
	return v, b[n:], nil
}

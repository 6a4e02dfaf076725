// Package grpcpool provides buffers for gRPC that fit its messages. gRPC's own pool has sizes of 32 KiB and 1 MiB with nothing in
// between, and clears a buffer before each use: for a frame of 40 tasks of 1 KiB it clears a whole MiB, on both sides.
//
// It knows the sizes of messages, not their contents.
package grpcpool

import (
	"fmt"
	"math/bits"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/mem"
	protobuf "google.golang.org/protobuf/proto"
)

// Pool lends the buffers. A buffer still holds the data of its last user.
var Pool mem.BufferPool = new(pool)

// ServerOptions returns the options for grpc.NewServer.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ForceServerCodecV2(codec{}), experimental.BufferPool(Pool)}
}

// DialOptions returns the options for grpc.NewClient.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{})), experimental.WithBufferPool(Pool)}
}

// Buffers of 2^least to 2^most bytes are kept.
const (
	least = 8
	most  = 24
)

// pool keeps buffers by size, a power of two.
type pool struct{ sizes [most + 1]sync.Pool }

// Get implements mem.BufferPool.
func (p *pool) Get(n int) *[]byte {
	size := sizeOf(n)
	if size > most {
		b := make([]byte, n)
		return &b
	}
	if b, ok := p.sizes[size].Get().(*[]byte); ok {
		*b = (*b)[:n]
		return b
	}
	b := make([]byte, n, 1<<size)
	return &b
}

// Put implements mem.BufferPool. A buffer that is not from the pool is left to the garbage collector.
func (p *pool) Put(b *[]byte) {
	if size := sizeOf(cap(*b)); size <= most && cap(*b) == 1<<size {
		p.sizes[size].Put(b)
	}
}

// sizeOf returns the exponent of the smallest power of two that has room for n bytes.
func sizeOf(n int) int {
	if n <= 1<<least {
		return least
	}
	return bits.Len(uint(n - 1))
}

// codec is gRPC's codec for protobuf, with another pool.
type codec struct{}

// Name implements encoding.CodecV2.
func (codec) Name() string { return proto.Name }

// Marshal implements encoding.CodecV2.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	watched, ok := v.(*Watched)
	if ok {
		return watched.encode()
	}
	m, ok := v.(protobuf.Message)
	if !ok {
		return nil, fmt.Errorf("encode %T: not a message", v)
	}
	n := protobuf.Size(m)
	options := protobuf.MarshalOptions{UseCachedSize: true}
	if mem.IsBelowBufferPoolingThreshold(n) {
		b, err := options.Marshal(m)
		return mem.BufferSlice{mem.SliceBuffer(b)}, err
	}
	b := Pool.Get(n)
	if _, err := options.MarshalAppend((*b)[:0], m); err != nil {
		Pool.Put(b)
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(b, Pool)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(protobuf.Message)
	if !ok {
		return fmt.Errorf("decode %T: not a message", v)
	}
	b := data.MaterializeToBuffer(Pool)
	defer b.Free()
	return protobuf.Unmarshal(b.ReadOnlyData(), m)
}

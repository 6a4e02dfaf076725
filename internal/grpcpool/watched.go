package grpcpool

import (
	"runtime"
	"sync/atomic"

	"google.golang.org/grpc/mem"
	protobuf "google.golang.org/protobuf/proto"
)

// pieceSize is the size of the pieces in which a Watched message is written.
const pieceSize = 256 << 10

// Watched is a large message to be sent, which is not in memory any more once gRPC has written all of it. It can be sent once.
type Watched struct {
	Message protobuf.Message
	// Left is called with the bytes that are still in memory: 0 at the end, also if they will never be written. That of what gRPC
	// drops without freeing it, like what waits in a connection that is closed, comes from the garbage collector. It may be called from any
	// goroutine.
	Left func(bytes int)
}

// encode encodes the message in pieces, which gRPC frees one by one.
func (w *Watched) encode() (mem.BufferSlice, error) {
	n := protobuf.Size(w.Message)
	whole := Pool.Get(n)
	b, err := protobuf.MarshalOptions{UseCachedSize: true}.MarshalAppend((*whole)[:0], w.Message)
	if err != nil {
		Pool.Put(whole)
		w.Left(0)
		return nil, err
	}
	p := &pieces{whole: whole, told: w.Left}
	p.left.Store(int64(n))
	count := max(n/pieceSize, 1)
	out := make(mem.BufferSlice, count)
	for i := range out {
		from, to := i*n/count, (i+1)*n/count
		piece := b[from:to:to]
		out[i] = mem.NewBuffer(&piece, p)
	}
	runtime.AddCleanup(p, w.Left, 0) // gRPC does not free what it is given for a call that has just been canceled
	w.Left(n)                        // the message itself is not needed any more
	return out, nil
}

// pieces is the mem.BufferPool that the pieces of a message return to.
type pieces struct {
	whole *[]byte
	left  atomic.Int64
	told  func(bytes int)
}

// Get implements mem.BufferPool.
func (*pieces) Get(n int) *[]byte { return Pool.Get(n) }

// Put implements mem.BufferPool.
func (p *pieces) Put(piece *[]byte) {
	left := p.left.Add(-int64(cap(*piece)))
	if left == 0 {
		Pool.Put(p.whole)
	}
	p.told(int(left))
}

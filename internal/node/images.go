package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"
	"golang.org/x/time/rate"

	"github.com/pawlq/pawl/internal/node/datadir"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/transport"
)

// Images are how backups read the states of shards. They use the same connections as everything between nodes, at a rate that
// leaves room for the rest. A reader that is too slow is cut off: while an image is read, the store keeps what has been deleted or
// overwritten since.

const (
	// methodImage names the streams that carry images to other nodes.
	methodImage = "image"
	// imageRate is how many bytes of images a node reads per second, for all backups together. It is the same as for snapshots.
	imageRate = 64 << 20
	// imageChunk is how much is read and sent at a time, imageAhead how many chunks are read ahead of the consumer.
	imageChunk = 256 << 10
	imageAhead = 4
	// imageStall is how long a chunk may wait for the consumer.
	imageStall = time.Minute
	// maxImages is how many images a node reads concurrently.
	maxImages = 4
)

var errStalled = fmt.Errorf("the reader of the state took nothing for %v", imageStall)

// images reads the states of shards, here and on other nodes, and limits a node's work for backups.
type images struct {
	identity  *datadir.IdentityStore
	transport *transport.Transport
	replicas  *replicas
	names     nodeNames

	backup  sync.Mutex    // held by the only backup that this node may make
	reading chan struct{} // has an item for each image being read
	budget  *rate.Limiter
}

func newImages(identity *datadir.IdentityStore, t *transport.Transport, here *replicas, names nodeNames) *images {
	return &images{identity: identity, transport: t, replicas: here, names: names, reading: make(chan struct{}, maxImages), budget: rate.NewLimiter(imageRate, imageAhead*imageChunk)}
}

// read passes the state of a shard that this node leads to take, chunk by chunk. Reading and taking are decoupled: take may
// block as long as it likes without holding up the replica, which must be able to stop.
func (i *images) read(ctx context.Context, id uint32, take func(chunk []byte) error) (at shard.Stamp, err error) {
	rep := i.replicas.get(id)
	if rep == nil {
		return at, &shard.NotLeader{}
	}
	select {
	case i.reading <- struct{}{}:
		defer func() { <-i.reading }()
	default:
		return at, fmt.Errorf("%d backups are reading from this node already", maxImages)
	}
	ctx, cancel := context.WithCancel(ctx)
	chunks := make(chan []byte, imageAhead)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(chunks)
		at, err = rep.shard.Image(ctx, func(ctx context.Context, snap *store.Snapshot) error {
			w := &chunkWriter{ctx: ctx, budget: i.budget, to: chunks}
			if err := snap.WriteImage(w); err != nil {
				return err
			}
			return w.flush()
		})
	})
	taken := takeAll(chunks, take)
	cancel() // nobody waits for the rest
	reading.Wait()
	if taken != nil {
		return at, taken
	}
	return at, err
}

// takeAll passes chunks to take until there are no more or take returns an error.
func takeAll(chunks <-chan []byte, take func([]byte) error) error {
	for chunk := range chunks {
		if err := take(chunk); err != nil {
			return err
		}
	}
	return nil
}

// chunkWriter splits an image into chunks and hands them over at a limited rate.
type chunkWriter struct {
	ctx    context.Context
	budget *rate.Limiter
	to     chan<- []byte
	chunk  []byte
}

// Write implements io.Writer.
func (w *chunkWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if w.chunk == nil {
			w.chunk = make([]byte, 0, imageChunk)
		}
		k := min(len(p), cap(w.chunk)-len(w.chunk))
		w.chunk = append(w.chunk, p[:k]...)
		if p = p[k:]; len(w.chunk) == cap(w.chunk) {
			if err := w.flush(); err != nil {
				return n - len(p), err
			}
		}
	}
	return n, nil
}

func (w *chunkWriter) flush() error {
	if len(w.chunk) == 0 {
		return nil
	}
	if err := w.budget.WaitN(w.ctx, len(w.chunk)); err != nil {
		return err
	}
	stall := time.NewTimer(imageStall)
	defer stall.Stop()
	select {
	case w.to <- w.chunk:
		w.chunk = nil
		return nil
	case <-w.ctx.Done():
		return w.ctx.Err()
	case <-stall.C:
		return errStalled
	}
}

// imageRequest opens a stream of methodImage.
type imageRequest struct{ Shard uint32 }

// imageFrame is a response of the stream: chunks, then one frame with the state's index and term, or a single frame that says that
// another node leads.
type imageFrame struct {
	Chunk       []byte
	Index, Term uint64 // in the last frame
	Moved       bool   // in the only frame
}

// serve answers a stream of methodImage.
func (i *images) serve(s transport.Stream) error {
	b, err := s.Recv()
	if err != nil {
		return err
	}
	var r imageRequest
	if err := cbor.Unmarshal(b, &r); err != nil {
		return err
	}
	send := func(f *imageFrame) error {
		b, err := cbor.Marshal(f)
		if err != nil {
			return err
		}
		return s.Send(b)
	}
	at, err := i.read(s.Context(), r.Shard, func(chunk []byte) error { return send(&imageFrame{Chunk: chunk}) })
	var moved *shard.NotLeader
	switch {
	case errors.As(err, &moved):
		return send(&imageFrame{Moved: true})
	case err != nil:
		return err
	}
	return send(&imageFrame{Index: at.Index, Term: at.Term})
}

// fetch is read on another node.
func (i *images) fetch(ctx context.Context, node, id uint32, take func(chunk []byte) error) (at shard.Stamp, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	s, err := i.transport.OpenStream(ctx, node, methodImage)
	if err != nil {
		return at, err
	}
	request, err := cbor.Marshal(imageRequest{id})
	if err != nil {
		return at, err
	}
	if err := s.Send(request); err != nil {
		return at, err
	}
	for {
		b, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return at, io.ErrUnexpectedEOF
		}
		if err != nil {
			return at, err
		}
		var f imageFrame
		if err := cbor.Unmarshal(b, &f); err != nil {
			return at, err
		}
		switch {
		case f.Moved:
			return at, &shard.NotLeader{}
		case f.Index > 0:
			return shard.Stamp{Shard: id, Index: f.Index, Term: f.Term}, nil
		}
		if err := take(f.Chunk); err != nil {
			return at, err
		}
	}
}

// from writes the state of a shard from a node, perhaps this one. After *shard.NotLeader nothing was written.
func (i *images) from(ctx context.Context, node, id uint32, w io.Writer) (at shard.Stamp, err error) {
	take := func(chunk []byte) error {
		_, err := w.Write(chunk)
		return err
	}
	if node == i.identity.Read().Node {
		return i.read(ctx, id, take)
	}
	if at, err = i.fetch(ctx, node, id, take); err != nil {
		var moved *shard.NotLeader
		if _, refused := task.AsError(err); refused || errors.As(err, &moved) {
			return at, err
		}
		return at, fmt.Errorf("node %q: %w", i.names.node(uint64(node)), err)
	}
	return at, nil
}

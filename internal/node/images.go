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
// leaves room for the rest. A reader that is too slow is cut off: while an image is open, the store keeps what has been deleted or
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
	// maxImages is how many images of a shard may be open on a node.
	maxImages = 4
	// imageTurn is how long an image may wait for its turn: those of a backup are opened together, and streamed one after another. It
	// bounds the cost of a backup that is stuck while its node lives.
	imageTurn = 12 * time.Hour
)

var (
	errStalled = fmt.Errorf("the reader of the state took nothing for %v", imageStall)
	errNoTurn  = fmt.Errorf("the state was not asked for within %v", imageTurn)
)

// images reads the states of shards, here and on other nodes, and limits a node's work for backups.
type images struct {
	identity  *datadir.IdentityStore
	transport *transport.Transport
	replicas  *replicas
	names     nodeNames

	backup sync.Mutex // held by the only backup that this node may make
	budget *rate.Limiter

	mu   sync.Mutex
	open map[uint32]int // images by shard
}

func newImages(identity *datadir.IdentityStore, t *transport.Transport, here *replicas, names nodeNames) *images {
	return &images{identity: identity, transport: t, replicas: here, names: names, open: map[uint32]int{},
		budget: rate.NewLimiter(imageRate, imageAhead*imageChunk)}
}

// image is the state of a shard at one entry. It does not change until it has been streamed or closed.
type image struct {
	at     shard.Stamp
	stream func(take func(chunk []byte) error) error // passes the state to take, chunk by chunk; at most once
	over   <-chan struct{}                           // closed when the image is gone
	close  func()
}

// reserve counts one more open image of a shard, unless there are too many. free must be called when it is closed; further calls have no
// effect.
func (i *images) reserve(id uint32) (free func(), ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.open[id] >= maxImages {
		return nil, false
	}
	i.open[id]++
	return sync.OnceFunc(func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.open[id]--
	}), true
}

// openHere opens the state of a shard that this node leads. Reading and taking are decoupled: take may block as long as it likes without
// holding up the replica, which must be able to stop.
func (i *images) openHere(ctx context.Context, id uint32) (*image, error) {
	rep := i.replicas.get(id)
	if rep == nil {
		return nil, &shard.NotLeader{}
	}
	free, ok := i.reserve(id)
	if !ok {
		return nil, fmt.Errorf("%d backups are reading shard %d already", maxImages, id)
	}
	ctx, cancel := context.WithCancel(ctx)
	opened, begin, chunks, over := make(chan shard.Stamp, 1), make(chan struct{}), make(chan []byte, imageAhead), make(chan struct{})
	var failed error
	go func() {
		defer close(over)
		defer close(chunks)
		_, failed = rep.shard.Image(ctx, func(ctx context.Context, snap *store.Snapshot) error {
			at, err := snap.Position()
			if err != nil {
				return err
			}
			opened <- shard.Stamp{Shard: id, Index: at.Index, Term: at.Term}
			if err := awaitTurn(ctx, begin); err != nil {
				return err
			}
			w := &chunkWriter{ctx: ctx, budget: i.budget, to: chunks}
			if err := snap.WriteImage(w); err != nil {
				return err
			}
			return w.flush()
		})
	}()
	end := func() {
		cancel() // nobody waits for the rest
		<-over
		free()
	}
	select {
	case at := <-opened:
		return &image{at: at, over: over, close: end, stream: func(take func([]byte) error) error {
			close(begin)
			taken := takeAll(chunks, take)
			end()
			if taken != nil {
				return taken
			}
			return failed
		}}, nil
	case <-over:
		end()
		return nil, failed
	}
}

// awaitTurn waits until an image is to be streamed.
func awaitTurn(ctx context.Context, begin <-chan struct{}) error {
	timer := time.NewTimer(imageTurn)
	defer timer.Stop()
	select {
	case <-begin:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return errNoTurn
	}
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

// imageFrame is a frame of the stream. The first one of the server says where the state is, or that another node leads; an empty one of
// the client asks for the state, when it is its turn; then chunks follow, and a last frame.
type imageFrame struct {
	Index, Term uint64 // in the first frame
	Moved       bool   // in the only frame
	Chunk       []byte
	Over        bool // in the last frame
}

func sendFrame(s transport.Stream, f *imageFrame) error {
	b, err := cbor.Marshal(f)
	if err != nil {
		return err
	}
	return s.Send(b)
}

func receiveFrame(s transport.Stream) (f imageFrame, err error) {
	b, err := s.Recv()
	if errors.Is(err, io.EOF) {
		return f, io.ErrUnexpectedEOF
	}
	if err == nil {
		err = cbor.Unmarshal(b, &f)
	}
	return f, err
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
	img, err := i.openHere(s.Context(), r.Shard)
	var moved *shard.NotLeader
	if errors.As(err, &moved) {
		return sendFrame(s, &imageFrame{Moved: true})
	}
	if err != nil {
		return err
	}
	defer img.close()
	if err := sendFrame(s, &imageFrame{Index: img.at.Index, Term: img.at.Term}); err != nil {
		return err
	}
	asked := make(chan error, 1)
	go func() { // until the stream ends
		_, err := receiveFrame(s)
		asked <- err
	}()
	select {
	case err := <-asked:
		if err != nil {
			return err
		}
	case <-img.over: // streaming it says why
	}
	if err := img.stream(func(chunk []byte) error { return sendFrame(s, &imageFrame{Chunk: chunk}) }); err != nil {
		return err
	}
	return sendFrame(s, &imageFrame{Over: true})
}

// openAt is openHere on another node.
func (i *images) openAt(ctx context.Context, node, id uint32) (*image, error) {
	ctx, cancel := context.WithCancel(ctx) // ends the stream
	s, f, err := i.request(ctx, node, id)
	if err != nil {
		cancel()
		return nil, err
	}
	stream := func(take func([]byte) error) error {
		defer cancel()
		if err := sendFrame(s, &imageFrame{}); err != nil {
			return err
		}
		for {
			f, err := receiveFrame(s)
			if err != nil || f.Over {
				return err
			}
			if err := take(f.Chunk); err != nil {
				return err
			}
		}
	}
	return &image{at: shard.Stamp{Shard: id, Index: f.Index, Term: f.Term}, stream: stream, over: ctx.Done(), close: cancel}, nil
}

// request opens a stream and returns its first frame.
func (i *images) request(ctx context.Context, node, id uint32) (s transport.Stream, f imageFrame, err error) {
	if s, err = i.transport.OpenStream(ctx, node, methodImage); err != nil {
		return s, f, err
	}
	request, err := cbor.Marshal(imageRequest{id})
	if err != nil {
		return s, f, err
	}
	if err := s.Send(request); err != nil {
		return s, f, err
	}
	f, err = receiveFrame(s)
	if err == nil && f.Moved {
		err = &shard.NotLeader{}
	}
	return s, f, err
}

// openFrom opens the state of a shard on a node, perhaps this one. The error is a *shard.NotLeader if another node leads the shard.
func (i *images) openFrom(ctx context.Context, node, id uint32) (*image, error) {
	if node == i.identity.Read().Node {
		return i.openHere(ctx, id)
	}
	img, err := i.openAt(ctx, node, id)
	if err != nil {
		return nil, i.ofNode(node, err)
	}
	stream := img.stream
	img.stream = func(take func([]byte) error) error { return i.ofNode(node, stream(take)) }
	return img, nil
}

// ofNode adds the name of a node to its error, unless it is a refusal.
func (i *images) ofNode(node uint32, err error) error {
	var moved *shard.NotLeader
	if _, refused := task.AsError(err); err == nil || refused || errors.As(err, &moved) {
		return err
	}
	return fmt.Errorf("node %q: %w", i.names.node(uint64(node)), err)
}

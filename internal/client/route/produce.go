package route

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/rpc"
	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

const (
	// A stream that carries nothing for idleStream to twice that is closed, so that an idle client costs neither side anything: while a
	// stream is open, gRPC pings. Many load balancers cut off what is silent for a minute.
	idleStream = 25 * time.Second
	// maxUnanswered is how many bytes may be without an answer when a caller sends by itself. gRPC takes 64 KiB of a stream before it makes a
	// sender wait for the other side; bytes that were answered have left.
	maxUnanswered = 60 << 10
	// frameOverhead is more than what the number of a frame and gRPC add to its tasks.
	frameOverhead = 64
	// unknownFor is how long a server gets calls that didn't know Produce: it may be upgraded.
	unknownFor = time.Minute
)

// producer carries the enqueues of one connection, as frames of a Produce stream: a frame costs both sides a fraction of a call. The
// stream is opened by the first enqueue, and again by the next one after it broke, was idle or began with a token that was replaced. A
// server that doesn't know Produce gets calls.
type producer struct {
	conn   *grpc.ClientConn
	caller caller

	unknownUntil atomic.Int64 // in seconds of Unix: the server didn't know Produce a moment ago

	mu     sync.Mutex // guards what follows
	stream *frameStream
	closed bool
	work   sync.WaitGroup // those who receive
}

// invoke makes a call over the connection; a batch goes over the stream. The word is what the answer says of its shard.
func (p *producer) invoke(ctx context.Context, method string, req, resp any, opts []grpc.CallOption) (w stamp, err error) {
	if batch, ok := req.(*pawlv1.EnqueueBatchRequest); ok && p.known() {
		answer, err := p.enqueue(ctx, batch)
		if status.Code(err) != codes.Unimplemented {
			resp.(*pawlv1.EnqueueBatchResponse).Results = answer.GetResults()
			return stampOfFrame(answer.GetStamps()), err
		}
		p.unknownUntil.Store(time.Now().Add(unknownFor).Unix())
	}
	var trailer metadata.MD
	err = p.conn.Invoke(ctx, method, req, resp, append(opts, grpc.Trailer(&trailer))...)
	return stampOf(trailer), err
}

// known says whether the server knows Produce, as far as was seen.
func (p *producer) known() bool {
	until := p.unknownUntil.Load()
	return until == 0 || time.Now().Unix() >= until
}

// close ends the connection. When it returns nobody receives any more.
func (p *producer) close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.conn.Close()
	p.work.Wait()
	return err
}

// enqueue sends a batch as a frame and waits for its answer.
func (p *producer) enqueue(ctx context.Context, batch *pawlv1.EnqueueBatchRequest) (*pawlv1.ProduceAnswer, error) {
	f := &frame{done: make(chan struct{}, 1)}
	f.req.Tasks = batch.GetTasks()
	if f.size = proto.Size(&f.req) + frameOverhead; f.size > rpc.MaxMessage { // which would end the stream, and the frames of others with it
		return nil, &pawltype.Error{Code: pawltype.ErrPayloadTooLarge, Field: "tasks", Message: fmt.Sprintf("%d tasks have %d bytes, more than a message of %d", len(f.req.Tasks), f.size, rpc.MaxMessage)}
	}
	for {
		s, err := p.open(ctx)
		if err != nil {
			return nil, err
		}
		if sent, err := s.send(f); err != nil {
			return nil, err
		} else if !sent {
			continue
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			s.leave(f)
			return nil, ctx.Err()
		}
		switch {
		case f.again:
			f.again = false
		case f.answer.GetError() != nil:
			return nil, convert.Error(f.answer.GetError())
		default:
			return f.answer, f.err
		}
	}
}

// open gives a stream that takes frames, and that began with the token that calls have at this moment.
func (p *producer) open(ctx context.Context) (*frameStream, error) {
	token, err := p.caller.secret()
	if err != nil {
		return nil, err
	}
	s, err := p.current(token)
	if err != nil {
		return nil, err
	}
	select {
	case <-s.opened:
		return s, s.refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *producer) current(token string) (*frameStream, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stream
	switch {
	case p.closed:
		return nil, pawltype.ErrClosed
	case s != nil && s.token == token && !s.over.Load():
		return s, nil
	case s != nil:
		s.retire()
	}
	s = &frameStream{token: token, opened: make(chan struct{}), frames: map[uint64]*frame{}}
	p.stream = s
	p.work.Go(func() { s.run(p.conn) })
	return s, nil
}

// frame is one batch on its way.
type frame struct {
	req  pawlv1.ProduceRequest
	size int           // bytes on the wire, about
	done chan struct{} // gets one value when the following are set
	// Either an answer, an error, or again: the server has not handled it, and it goes over another stream.
	answer *pawlv1.ProduceAnswer
	err    error
	again  bool

	left bool // its caller waits no more; guarded by frameStream.mu
}

// frameStream is one Produce stream. Each caller sends its own frame, and one goroutine receives the answers and wakes the callers.
type frameStream struct {
	token   string
	opened  chan struct{} // closed when refused or stream is set
	refused error         // why it could not be opened
	over    atomic.Bool   // it takes no more frames

	mu         sync.Mutex // guards what follows
	stream     pawlv1.ProducerService_ProduceClient
	frames     map[uint64]*frame // that have no answer yet
	last       uint64            // number of a frame
	unanswered int               // bytes of frames
	queue      []*frame          // for flush to send
	flushing   bool              // flush alone sends
	retired    bool              // it ends when what was sent is answered
	served     bool              // it has had an answer
	ended      bool
	err        error // why it ended
	used       bool  // since the timer looked
	idle       *time.Timer
}

// run opens the stream and receives answers until it ends, with the connection at the latest. It belongs to none of those who use it.
func (s *frameStream) run(conn *grpc.ClientConn) {
	stream, err := pawlv1.NewProducerServiceClient(conn).Produce(context.Background())
	if err != nil {
		s.refused = err
		s.over.Store(true)
		close(s.opened)
		return
	}
	s.begin(stream)
	close(s.opened)
	for {
		m, err := stream.Recv()
		if err != nil {
			s.end(err)
			return
		}
		s.received(m)
	}
}

func (s *frameStream) begin(stream pawlv1.ProducerService_ProduceClient) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream = stream
	if s.retired { // meanwhile
		_ = stream.CloseSend() // never fails
		return
	}
	s.idle = time.AfterFunc(idleStream, s.look)
}

// send sends a frame. It is not sent if the stream takes no more, and another one does; an error says why the server took none. It never waits for
// the server, or a caller could not leave.
func (s *frameStream) send(f *frame) (sent bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended && !s.served:
		return false, s.err
	case s.ended || s.retired:
		return false, nil
	}
	s.last++
	f.req.Number, s.frames[s.last], s.used = s.last, f, true
	ahead := s.unanswered
	s.unanswered += f.size
	switch {
	case !s.flushing && ahead <= maxUnanswered:
		return s.stream.Send(&f.req) == nil || !s.takeBackLocked(f), nil
	case !s.flushing:
		s.flushing = true
		go s.flush()
	}
	s.queue = append(s.queue, f)
	return true, nil
}

// flush sends what the server may have to make room for.
func (s *frameStream) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) > 0 {
		f := s.queue[0]
		s.queue = s.queue[1:]
		if f.left {
			s.forgetLocked(f)
			continue
		}
		s.mu.Unlock()
		err := s.stream.Send(&f.req)
		s.mu.Lock()
		if err != nil && s.takeBackLocked(f) {
			f.again = true
			f.done <- struct{}{}
		}
	}
	s.queue, s.flushing = nil, false
	if s.retired {
		_ = s.stream.CloseSend()
	}
}

// takeBackLocked says whether a frame that could not be sent, since the stream has ended, may go over another one. One that never had an
// answer will tell why it ended, and so will the next.
func (s *frameStream) takeBackLocked(f *frame) bool {
	s.over.Store(true)
	if !s.served || s.frames[f.req.Number] != f {
		return false
	}
	s.forgetLocked(f)
	return true
}

func (s *frameStream) forgetLocked(f *frame) {
	delete(s.frames, f.req.Number)
	s.unanswered -= f.size
}

// leave is for a caller that waits no more. What it has sent is on its way.
func (s *frameStream) leave(f *frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.left = true
}

// received gives answers to those who wait.
func (s *frameStream) received(m *pawlv1.ProduceResponse) {
	s.mu.Lock()
	for _, a := range m.GetAnswers() {
		f := s.frames[a.GetNumber()]
		if f == nil {
			continue
		}
		s.forgetLocked(f)
		s.served = true
		f.answer = a
		f.done <- struct{}{}
	}
	s.mu.Unlock()
	if m.GetDraining() {
		s.retire()
	}
}

// retire has the stream take no more frames, and end when all are answered.
func (s *frameStream) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over.Store(true)
	if s.retired || s.ended {
		return
	}
	s.retired = true
	if s.stream != nil && !s.flushing {
		_ = s.stream.CloseSend()
	}
}

// look closes a stream that was idle since the last look.
func (s *frameStream) look() {
	s.mu.Lock()
	idle := !s.used && len(s.frames) == 0
	if !idle && !s.ended {
		s.used = false
		s.idle.Reset(idleStream)
	}
	s.mu.Unlock()
	if idle {
		s.retire()
	}
}

// end tells those who wait that the stream has ended without their answers. Whether they happened is known only if the server ended it.
func (s *frameStream) end(err error) {
	if errors.Is(err, io.EOF) {
		err = status.Error(codes.Unavailable, "the stream ended before the answer")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over.Store(true)
	s.ended, s.err = true, err
	if s.idle != nil {
		s.idle.Stop()
	}
	// The token has ended, not the caller's right to another: a new stream tells.
	code := status.Code(err)
	again := s.served && (code == codes.Unauthenticated || code == codes.PermissionDenied)
	for _, f := range s.frames {
		if f.again = again; !again {
			f.err = err
		}
		f.done <- struct{}{}
	}
	s.frames = nil
}

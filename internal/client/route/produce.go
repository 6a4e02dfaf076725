package route

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
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
	// A stream that carries nothing for idleStream to twice that is closed, so that an idle client costs neither side
	// anything: while a stream is open, gRPC pings. Many load balancers cut connections that are silent for a minute.
	idleStream = 25 * time.Second
	// maxUnanswered is how many bytes may be unanswered when a caller sends on its own goroutine. gRPC accepts 64 KiB of a
	// stream before it makes a sender wait for the other side; bytes that were answered have been sent.
	maxUnanswered = 60 << 10
	// frameOverhead is more than a frame's number and gRPC add to its tasks.
	frameOverhead = 64
	// maxFrames may be unanswered on a stream; the next one goes over another stream. Servers handle as many at a time, and receive nothing
	// meanwhile: those for a shard that hangs, whose callers may have left, would hold up all others.
	maxFrames = 64
	// unknownFor is how long a server without Produce gets calls instead: it may be upgraded.
	unknownFor = time.Minute
)

// producer sends the enqueues of one connection, as frames of a Produce stream: a frame costs both sides a fraction of a call. The first
// enqueue opens the stream, and so does the next one after it broke, was idle or was opened with a token that has been replaced. A server
// without Produce gets calls.
type producer struct {
	conn   *conn
	caller caller

	unknownUntil atomic.Int64 // in Unix seconds: the server has just shown that it lacks Produce

	mu     sync.Mutex // guards the fields below
	stream *frameStream
	closed bool
	work   sync.WaitGroup // the receivers
}

// invoke makes a call over the connection; a batch goes over the stream. The stamp is what the response says about its shard.
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

// known reports whether the server has Produce, as far as is known.
func (p *producer) known() bool {
	until := p.unknownUntil.Load()
	return until == 0 || time.Now().Unix() >= until
}

// close closes the connection. When it returns, nothing is received any more.
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
	if f.size = proto.Size(&f.req) + frameOverhead; f.size > rpc.MaxMessage { // it would end the stream, and the frames of others with it
		return nil, &pawltype.Error{Code: pawltype.ErrPayloadTooLarge, Field: "tasks",
			Message: fmt.Sprintf("%d tasks have %d bytes, over the message limit of %d", len(f.req.Tasks), f.size, rpc.MaxMessage)}
	}
	p.conn.prober.beginCall()
	defer p.conn.prober.endCall()
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

// open returns a stream that accepts frames, and that was opened with the token that calls have now.
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
	p.work.Go(func() { s.run(p.conn.ClientConn) })
	return s, nil
}

// frame is one batch in flight.
type frame struct {
	req  pawlv1.ProduceRequest
	size int           // approximate bytes on the wire
	done chan struct{} // gets one value when the following are set
	// Either answer, err, or again: the server has not handled the frame, and it is sent over another stream.
	answer *pawlv1.ProduceAnswer
	err    error
	again  bool

	left bool // its caller no longer waits; guarded by frameStream.mu
}

// frameStream is one Produce stream. Each caller sends its own frame, and one goroutine receives the answers and wakes the callers.
type frameStream struct {
	token   string
	opened  chan struct{} // closed when refused or stream is set
	refused error         // why it could not be opened
	over    atomic.Bool   // accepts no more frames

	mu         sync.Mutex // guards the fields below
	stream     pawlv1.ProducerService_ProduceClient
	frames     map[uint64]*frame // those without an answer
	last       uint64            // number of the last frame
	unanswered int               // bytes of frames
	queue      []*frame          // for flush to send
	flushing   bool              // only flush sends
	retired    bool              // ends when the frames sent so far are answered
	served     bool              // has had an answer
	ended      bool
	err        error // why it ended
	used       bool  // since the timer last fired
	idle       *time.Timer
}

// run opens the stream and receives answers until the stream ends, with the connection at the latest. It is not bound to any of its users.
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
	if s.retired { // in the meantime
		_ = stream.CloseSend() // never fails
		return
	}
	s.idle = time.AfterFunc(idleStream, s.look)
}

// send sends a frame. If it reports false, the stream accepts no more, and the caller uses another; an error is why the
// server accepted none. It never waits for the server, since a caller must be able to leave.
func (s *frameStream) send(f *frame) (sent bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended && !s.served:
		return false, s.err
	case s.ended || s.retired:
		return false, nil
	case len(s.frames) >= maxFrames:
		s.over.Store(true)
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

// flush sends the frames for which the server may have to make room.
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

// takeBackLocked reports whether a frame that could not be sent, because the stream has ended, may be sent over another
// one. If the stream never had an answer, the frame gets its error instead.
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

// leave is for a caller that no longer waits. A frame that was sent stays in flight.
func (s *frameStream) leave(f *frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.left = true
}

// notReady reports whether a message has an answer of a node that has no contact with its cluster.
func notReady(m *pawlv1.ProduceResponse) bool {
	return slices.ContainsFunc(m.GetAnswers(), func(a *pawlv1.ProduceAnswer) bool {
		return a.GetError() != nil && convert.DidNotRun(convert.Error(a.GetError()))
	})
}

// received passes answers to the callers that wait for them.
func (s *frameStream) received(m *pawlv1.ProduceResponse) {
	if m.GetDraining() || notReady(m) {
		s.retire() // first: the callers may repeat their frames
	}
	s.mu.Lock()
	defer s.mu.Unlock()
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
}

// retire makes the stream accept no more frames, and end when all are answered.
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

// look closes a stream that was idle since the previous look.
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

// end reports to all waiting callers that the stream has ended without their answers. Whether their frames were handled is known
// only if the server ended it.
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
	// The token has expired, but the caller may get another: a new stream will show.
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

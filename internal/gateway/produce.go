package gateway

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/receive"
	"github.com/pawlq/pawl/internal/parallel"
)

const (
	// maxFrames bounds the frames of a Produce stream in progress. Beyond it the stream is not read, and the client's sends block.
	maxFrames = 64
	// spareReceivers is how many goroutines of a stream stay to wait for their turn to receive: a goroutine that stays keeps its
	// stack, which a new one has to grow. A client that sends one frame at a time needs one of them.
	spareReceivers = 2
	// maxResultsTogether bounds the results of frames answered in one message, besides those of the first frame.
	maxResultsTogether = 1000
	// frameMethod is the name under which frames are counted, separately from the streams.
	frameMethod = "ProducerService/Produce.frame"
)

// produceStream is one Produce stream.
//
// An idle stream costs two goroutines: gRPC's own, which waits for the end, and one in serveFrames, which receives. The goroutine
// that receives a frame also handles and answers it, so that a frame never changes goroutines; another one receives meanwhile, and
// is started if there is none. A goroutine per frame would have to grow its stack each time, and a single receiver would have to
// wake another for each frame.
type produceStream struct {
	g      *producerService
	stream pawlv1.ProducerService_ProduceServer
	ctx    context.Context // of the stream
	of     *callinfo.Call  // the stream itself
	ended  chan struct{}   // closed when the stream accepts no more frames

	// Capacity 1 each, held by the goroutine that receives, and by the one that sends. They may be held for as long as a peer
	// likes.
	receiving, sending chan struct{}

	mu       sync.Mutex // guards what follows
	running  int        // goroutines in serveFrames
	idle     int        // those of them that receive, or wait to
	err      error      // why no more frames are accepted; set before ended is closed
	answers  []*pawlv1.ProduceAnswer
	underWay sync.WaitGroup // frames; nothing is added once err is set
}

// Produce serves the frames of one stream until its client ends it.
func (g *producerService) Produce(stream pawlv1.ProducerService_ProduceServer) error {
	s := &produceStream{g: g, stream: stream, ctx: stream.Context(), of: callinfo.Of(stream.Context()), ended: make(chan struct{}),
		receiving: make(chan struct{}, 1), sending: make(chan struct{}, 1), running: 1, idle: 1}
	go s.serveFrames()
	s.wait()
	s.underWay.Wait() // what has begun is answered, even if the token has ended
	if errors.Is(s.err, io.EOF) {
		return nil
	}
	return s.err
}

// wait waits until the stream accepts no more frames, and tells the client if the node shuts down.
func (s *produceStream) wait() {
	draining := s.g.broker.Draining()
	for {
		select {
		case <-s.ended:
			return
		case <-s.ctx.Done(): // the client is gone, or its token has ended
			s.end(s.ctx.Err())
			return
		case <-draining:
			draining = nil
			s.send(&pawlv1.ProduceResponse{Draining: true})
		}
	}
}

// end makes the stream accept no more frames.
func (s *produceStream) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
		close(s.ended)
	}
}

// serveFrames receives and handles frames one after the other, until the stream ends or enough others do the same.
func (s *produceStream) serveFrames() {
	for {
		frame := &pawlv1.ProduceRequest{}
		room, ok := s.receive(frame)
		if !ok {
			return
		}
		s.answer(s.handle(frame))
		room.Give()
		s.underWay.Done()
		if !s.goOn() {
			return
		}
	}
}

// receive waits for the next frame. The memory of a large one is held until room is released.
func (s *produceStream) receive(into *pawlv1.ProduceRequest) (room receive.Held, ok bool) {
	s.receiving <- struct{}{}
	defer func() { <-s.receiving }()
	if err := s.stream.RecvMsg(into); err != nil {
		s.end(err)
		return receive.Held{}, false
	}
	room = s.of.Receiver.Keep()
	if !s.begin() {
		room.Give()
		return receive.Held{}, false
	}
	return room, true
}

// begin counts a received frame, unless the stream accepts no more, and makes sure that another goroutine receives the next one.
func (s *produceStream) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return false
	}
	s.underWay.Add(1)
	s.idle--
	if s.idle == 0 && s.running < maxFrames {
		s.running++
		s.idle++
		go s.serveFrames()
	}
	return true
}

// goOn reports whether a goroutine that has answered its frame should wait for another.
func (s *produceStream) goOn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle > spareReceivers {
		s.running--
		return false
	}
	s.idle++
	return true
}

// handle runs a frame like EnqueueBatch. A panic ends the frame only.
func (s *produceStream) handle(frame *pawlv1.ProduceRequest) *pawlv1.ProduceAnswer {
	began := time.Now()
	ctx := callinfo.NewFrame(s.of, s.of.Receiver.Stream, s.ctx, frameMethod)
	answer := &pawlv1.ProduceAnswer{Number: frame.GetNumber()}
	err := parallel.Safely(func() (err error) {
		answer.Results, err = s.enqueue(ctx, frame)
		return err
	})
	if err != nil {
		answer.Results, answer.Error = nil, s.g.Item(err)
	}
	s.g.observer.Observed(&ctx.Call, err, time.Since(began))
	answer.Stamps = s.g.leaders.Stamps(&ctx.Call)
	return answer
}

func (s *produceStream) enqueue(ctx *callinfo.Frame, frame *pawlv1.ProduceRequest) ([]*pawlv1.EnqueueResult, error) {
	leave, err := s.g.access.AdmitFrame(&ctx.Call)
	if err != nil {
		return nil, err
	}
	defer leave()
	got, err := s.g.EnqueueBatch(ctx, &pawlv1.EnqueueBatchRequest{Tasks: frame.GetTasks()})
	return got.GetResults(), err
}

// answer returns once the answer has been sent, so that the stream is not read while the client does not receive. Answers that are
// ready by then are sent together.
func (s *produceStream) answer(a *pawlv1.ProduceAnswer) {
	s.mu.Lock()
	s.answers = append(s.answers, a)
	s.mu.Unlock()
	s.send(nil)
}

// send sends a message or, if it is nil, the answers that are ready, unless another goroutine has sent them meanwhile.
func (s *produceStream) send(m *pawlv1.ProduceResponse) {
	s.sending <- struct{}{}
	defer func() { <-s.sending }()
	if m == nil {
		m = &pawlv1.ProduceResponse{Answers: s.takeAnswers()}
		if len(m.Answers) == 0 {
			return
		}
	}
	if err := s.stream.Send(m); err != nil {
		s.end(err)
	}
}

// takeAnswers takes the answers for one message.
func (s *produceStream) takeAnswers() []*pawlv1.ProduceAnswer {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, results := 0, 0
	for n < len(s.answers) && (n == 0 || results <= maxResultsTogether) {
		results += len(s.answers[n].GetResults())
		n++
	}
	taken := s.answers[:n]
	if s.answers = s.answers[n:]; len(s.answers) == 0 {
		s.answers = nil
	}
	return taken
}

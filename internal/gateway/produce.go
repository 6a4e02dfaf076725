package gateway

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

const (
	// maxFrames bounds the frames of a Produce stream that are under way. Beyond it the stream is not read, and the client's sends block.
	maxFrames = 64
	// spareReceivers is how many goroutines of a stream stay to wait for their turn to receive: a goroutine that stays has its stack, and a
	// new one has to grow it. A client that sends one frame at a time needs one of them.
	spareReceivers = 2
	// maxResultsTogether bounds the results of frames that are answered in one message, besides those of the first frame.
	maxResultsTogether = 1000
	// frameMethod is how frames are counted, beside the streams themselves.
	frameMethod = "ProducerService/Produce.frame"
)

// produceStream is one Produce stream.
//
// An idle stream costs two goroutines: gRPC's own, which waits for the end, and one in serveFrames, which receives. The one that receives a
// frame handles and answers it, too, so that a frame changes hands at no place; another one receives meanwhile, and is started
// if there is none. A goroutine for each frame would have to grow its stack each time, and one that receives for
// all would have to wake another for each frame.
type produceStream struct {
	g      *Gateway
	stream pawlv1.ProducerService_ProduceServer
	ctx    context.Context // of the stream
	of     *call           // the stream itself
	ended  chan struct{}   // closed when the stream takes no more frames

	// One place each, taken by the one that receives, and by the one that sends. They may be waited for as long as a peer likes.
	receiving, sending chan struct{}

	mu       sync.Mutex // guards what follows
	running  int        // goroutines in serveFrames
	idle     int        // those of them that receive, or wait for it
	err      error      // why no more frames are taken; set before ended is closed
	answers  []*pawlv1.ProduceAnswer
	underWay sync.WaitGroup // frames; nothing is added when err is set
}

// Produce serves the frames of one stream until its client ends it.
func (g producers) Produce(stream pawlv1.ProducerService_ProduceServer) error {
	s := &produceStream{g: g.Gateway, stream: stream, ctx: stream.Context(), of: callOf(stream.Context()), ended: make(chan struct{}),
		receiving: make(chan struct{}, 1), sending: make(chan struct{}, 1), running: 1, idle: 1}
	go s.serveFrames()
	s.wait()
	s.underWay.Wait() // what was begun is answered, also if the token has ended
	if errors.Is(s.err, io.EOF) {
		return nil
	}
	return s.err
}

// wait waits until the stream takes no more frames, and tells the client if the node shuts down.
func (s *produceStream) wait() {
	draining := s.g.broker.Draining()
	for {
		select {
		case <-s.ended:
			return
		case <-s.ctx.Done(): // the client is gone, or its token
			s.end(s.ctx.Err())
			return
		case <-draining:
			draining = nil
			s.tell(&pawlv1.ProduceResponse{Draining: true})
		}
	}
}

// end has the stream take no more frames.
func (s *produceStream) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
		close(s.ended)
	}
}

// serveFrames receives and handles one frame after the other, until the stream ends or enough others do the same.
func (s *produceStream) serveFrames() {
	for {
		frame := &pawlv1.ProduceRequest{}
		room, ok := s.receive(frame)
		if !ok {
			return
		}
		s.answer(s.handle(frame))
		room.give()
		s.underWay.Done()
		if !s.goOn() {
			return
		}
	}
}

// receive waits for the next frame. The memory that a large one takes is held until room is given back.
func (s *produceStream) receive(into *pawlv1.ProduceRequest) (room heldRoom, ok bool) {
	s.receiving <- struct{}{}
	defer func() { <-s.receiving }()
	if err := s.stream.RecvMsg(into); err != nil {
		s.end(err)
		return heldRoom{}, false
	}
	room = s.of.receiver.keep()
	if !s.begin() {
		room.give()
		return heldRoom{}, false
	}
	return room, true
}

// begin counts a frame that was received, unless the stream takes no more, and sees to it that somebody receives the next one.
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

// goOn says whether a goroutine that has answered its frame is to wait for another.
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

// handle runs a frame as EnqueueBatch does. A panic ends the frame only.
func (s *produceStream) handle(frame *pawlv1.ProduceRequest) *pawlv1.ProduceAnswer {
	began := time.Now()
	ctx := s.newFrameContext()
	answer := &pawlv1.ProduceAnswer{Number: frame.GetNumber()}
	err := safely(func() (err error) {
		answer.Results, err = s.enqueue(ctx, frame)
		return err
	})
	if err != nil {
		answer.Results, answer.Error = nil, s.g.itemError(err)
	}
	s.g.observed(&ctx.call, err, time.Since(began))
	answer.Stamps = s.g.stampsOf(&ctx.call)
	return answer
}

func (s *produceStream) enqueue(ctx *frameContext, frame *pawlv1.ProduceRequest) ([]*pawlv1.EnqueueResult, error) {
	leave, err := s.g.admitFrame(&ctx.call)
	if err != nil {
		return nil, err
	}
	defer leave()
	got, err := producers{Gateway: s.g}.EnqueueBatch(ctx, &pawlv1.EnqueueBatchRequest{Tasks: frame.GetTasks()})
	return got.GetResults(), err
}

// answer returns when an answer was sent, so that the stream is not read while the client takes no answers. Those that are ready by then are
// sent together.
func (s *produceStream) answer(a *pawlv1.ProduceAnswer) {
	s.mu.Lock()
	s.answers = append(s.answers, a)
	s.mu.Unlock()
	s.tell(nil)
}

// tell sends a message, or with nil the answers that are ready, if another has not sent them meanwhile.
func (s *produceStream) tell(m *pawlv1.ProduceResponse) {
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

// frameContext is the context of a frame, with a call of its own. It has what is known of the stream's caller, and ends when the client
// is gone: not with the token, since a frame that was begun is answered.
type frameContext struct {
	context.Context // of gRPC's stream
	admitted        context.Context
	call            call
}

func (s *produceStream) newFrameContext() *frameContext {
	return &frameContext{Context: s.of.receiver.ctx, admitted: s.ctx,
		call: call{namespace: s.of.namespace, visitor: s.of.visitor, face: s.of.face, method: frameMethod, frame: true}}
}

// Value implements context.Context.
func (c *frameContext) Value(key any) any {
	if key == (callKey{}) {
		return &c.call
	}
	return c.admitted.Value(key)
}

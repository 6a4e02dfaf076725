package transport

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// frameBytes is the size at which a frame takes no more messages. A single message may be larger.
	frameBytes = 1 << 20
	// openPause follows a stream that could not be opened, and refusedPause one that was refused, which lasts until an operator
	// changes something.
	openPause    = 50 * time.Millisecond
	refusedPause = time.Second
)

// Send queues messages for a node, and never blocks. Messages are dropped if there is no connection or no room. They must not be
// modified afterwards.
func (t *Transport) Send(to uint32, envelopes []Envelope) {
	p, err := t.peer(to)
	if err != nil {
		return
	}
	for _, e := range envelopes {
		l := queuedMessage{Envelope: e, bytes: roughBytes(e.Message)}
		if !p.queueFor(l).put(l) {
			p.noteLoss()
		}
	}
}

func (p *peer) queueFor(l queuedMessage) *queue {
	if len(l.Message.GetEntries()) == 0 && l.bytes <= maxSmall {
		return p.smallQueue
	}
	return p.bigQueue
}

// sendLoop writes the messages of a queue to a connection, until the peer is closed.
func (p *peer) sendLoop(l *link, q *queue) {
	s := &raftStream{p: p, l: l}
	defer s.end()
	var spare []queuedMessage
	for {
		messages := q.take(p.ctx, spare)
		if messages == nil {
			return
		}
		err := s.open() // if that fails, the messages are dropped: they would be stale by the next attempt
		for rest := messages; len(rest) > 0 && err == nil; {
			n := frameCount(rest)
			err = s.send(rest[:n])
			rest = rest[n:]
		}
		q.done(messages)
		spare = messages
		if err != nil && !p.failed(err) {
			return
		}
	}
}

// failed reports lost messages, and waits before the next attempt.
func (p *peer) failed(err error) bool {
	p.noteLoss()
	if p.t.noteRefusal(err, p.number, p.at) {
		return p.pause(refusedPause)
	}
	return p.pause(openPause)
}

// frameCount returns how many messages go into the next frame.
func frameCount(messages []queuedMessage) int {
	bytes := 0
	for i, l := range messages {
		if bytes += l.bytes; bytes > frameBytes {
			return max(i, 1)
		}
	}
	return len(messages)
}

// raftStream is a stream of frames of Raft messages. It is reopened after it has ended, and when this node's identity has changed:
// the receiver attributes all frames of a stream to the peer that opened it.
type raftStream struct {
	p *peer
	l *link

	now   grpc.ClientStream // nil: none
	as    Peer              // the identity that opened now
	stop  context.CancelFunc
	ended chan error // the reason why now has ended; has room for one
}

// open opens the stream unless it is open. A goroutine waits for its end, so that its end is noticed without losing a message.
func (s *raftStream) open() error {
	self := s.p.t.cfg.Self()
	if s.now != nil && len(s.ended) == 0 && s.as == self {
		return nil
	}
	s.end()
	ctx, stop := context.WithCancel(s.p.ctx)
	now, err := s.p.t.begin(ctx, s.l, methodRaft, s.p.number, "")
	if err != nil {
		stop()
		return err
	}
	ended := make(chan error, 1)
	s.now, s.as, s.stop, s.ended = now, self, stop, ended
	s.p.running.Go(func() {
		ended <- now.RecvMsg(new(frame))
		if ctx.Err() == nil {
			s.p.noteLoss() // messages in flight
		}
	})
	return nil
}

func (s *raftStream) end() {
	if s.now != nil {
		s.stop()
		s.now = nil
	}
}

// send writes one frame. A message that no peer would accept is dropped without closing the stream.
func (s *raftStream) send(messages []queuedMessage) error {
	f, err := newRaftFrame(messages)
	if err != nil {
		s.p.noteLoss()
		s.p.t.cfg.Logger.Error("a message to a peer was dropped", "peer", s.p.at.Name, "error", err)
		return nil
	}
	if s.now.SendMsg(f) == nil {
		return nil
	}
	err = outcome(s.p.ctx, <-s.ended, true) // SendMsg only returns that the stream has ended, this why
	s.end()
	return err
}

func newRaftFrame(messages []queuedMessage) (*frame, error) {
	envelopes := make([]Envelope, len(messages))
	for i, l := range messages {
		envelopes[i] = l.Envelope
	}
	size := frameSize(envelopes)
	if size >= maxMessage {
		return nil, fmt.Errorf("raft message of shard %d: %d bytes, at most %d", envelopes[0].Shard, size, maxMessage)
	}
	room := pool.Get(size)
	b, err := appendFrame((*room)[:0], envelopes)
	if err != nil {
		return nil, err
	}
	*room = b
	return &frame{kind: kindBody, body: b, room: room}, nil
}

// serveRaft accepts frames until their sender ends the stream or no longer belongs to the cluster.
func (t *Transport) serveRaft(v incoming, s grpc.ServerStream) error {
	if err := s.SendHeader(nil); err != nil {
		return err
	}
	for {
		var f frame
		if err := s.RecvMsg(&f); err != nil {
			return err
		}
		if err := t.examine(s.Context(), v, false); err != nil { // the sender identifies itself only once, but its membership may change
			return t.refuse(s.Context(), v, err)
		}
		envelopes, err := parseFrame(f.body)
		if err != nil {
			if t.logLimit.allow("frame " + v.from.Name) {
				t.cfg.Logger.Error("a peer's frame can't be read", "peer", v.from.Name, "number", v.from.Number, "error", err)
			}
			return status.Error(codes.InvalidArgument, err.Error())
		}
		t.cfg.Handler.Raft(v.from, envelopes)
	}
}

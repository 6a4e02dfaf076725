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
	// frameBytes is where a frame takes no more messages. It may have one message that is larger.
	frameBytes = 1 << 20
	// openPause follows a stream that could not be opened, and refusedPause one that was refused: that passes only when
	// somebody changes something.
	openPause    = 50 * time.Millisecond
	refusedPause = time.Second
)

// Send gives messages on their way to a node, and never blocks. What there is no connection or no room for is dropped.
// The messages must not be changed afterwards.
func (t *Transport) Send(to uint32, envelopes []Envelope) {
	p, err := t.peer(to)
	if err != nil {
		return
	}
	for _, e := range envelopes {
		l := letter{Envelope: e, bytes: roughBytes(e.Message)}
		if !p.queueFor(l).put(l) {
			p.miss()
		}
	}
}

func (p *peer) queueFor(l letter) *queue {
	if len(l.Message.GetEntries()) == 0 && l.bytes <= largest {
		return p.smallQueue
	}
	return p.bigQueue
}

// carry writes what is in a queue to a connection, until the peer is closed.
func (p *peer) carry(l *link, q *queue) {
	s := &raftStream{p: p, l: l}
	defer s.end()
	var spare []letter
	for {
		letters := q.take(p.ctx, spare)
		if letters == nil {
			return
		}
		err := s.open() // if that fails, the letters are lost: they are stale before the next try
		for rest := letters; len(rest) > 0 && err == nil; {
			n := fill(rest)
			err = s.send(rest[:n])
			rest = rest[n:]
		}
		q.done(letters)
		spare = letters
		if err != nil && !p.failed(err) {
			return
		}
	}
}

// failed says that messages were lost, and waits before the next try.
func (p *peer) failed(err error) bool {
	p.miss()
	if p.t.heedRefusal(err, p.number, p.at) {
		return p.pause(refusedPause)
	}
	return p.pause(openPause)
}

// fill says how many letters go into the next frame.
func fill(letters []letter) int {
	bytes := 0
	for i, l := range letters {
		if bytes += l.bytes; bytes > frameBytes {
			return max(i, 1)
		}
	}
	return len(letters)
}

// raftStream is a stream of frames of Raft messages. It is opened again after it has ended, and when this node has become
// another member: the receiver takes all frames of a stream for those of whoever opened it.
type raftStream struct {
	p *peer
	l *link

	now   grpc.ClientStream // nil: none
	as    Peer              // who opened now
	stop  context.CancelFunc
	ended chan error // why now has ended, in its place for one
}

// open opens the stream unless it is open. A goroutine waits for its end, so that no message is lost by finding that out.
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
			s.p.miss() // what was under way
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

// send writes one frame. A message that no peer would take is dropped, and costs no connection.
func (s *raftStream) send(letters []letter) error {
	f, err := newRaftFrame(letters)
	if err != nil {
		s.p.miss()
		s.p.t.cfg.Logger.Error("a message to a peer was dropped", "peer", s.p.at.Name, "error", err)
		return nil
	}
	if s.now.SendMsg(f) == nil {
		return nil
	}
	err = outcome(s.p.ctx, <-s.ended, true) // SendMsg only says that the stream has ended, this why
	s.end()
	return err
}

func newRaftFrame(letters []letter) (*frame, error) {
	envelopes := make([]Envelope, len(letters))
	for i, l := range letters {
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

// serveRaft takes frames until their sender ends the stream, or no longer belongs to the cluster.
func (t *Transport) serveRaft(v visit, s grpc.ServerStream) error {
	if err := s.SendHeader(nil); err != nil {
		return err
	}
	for {
		var f frame
		if err := s.RecvMsg(&f); err != nil {
			return err
		}
		if err := t.examine(s.Context(), v, false); err != nil { // what it says of itself it has said once
			return t.refuse(s.Context(), v, err)
		}
		envelopes, err := parseFrame(f.body)
		if err != nil {
			if t.said.may("frame " + v.from.Name) {
				t.cfg.Logger.Error("a peer's frame can't be read", "peer", v.from.Name, "number", v.from.Number, "error", err)
			}
			return status.Error(codes.InvalidArgument, err.Error())
		}
		t.cfg.Handler.Raft(v.from, envelopes)
	}
}

package claim

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// watchMethod is the method of streams that carry watched claims.
const watchMethod = "watch"

// watchFrame is a frame to the node that watches claims. Removals apply before additions.
type watchFrame struct {
	Remove []broker.Hold
	Add    []broker.Hold
}

// notices is a frame from that node.
type notices struct {
	Lost  []broker.Lost
	Moved []broker.NotLeader // shards that it does not lead any more: none of their claims is watched there
}

const (
	// maxFrameClaims bounds the claims in a frame.
	maxFrameClaims = 1000
	// maxRemovals bounds the removals that wait to be sent. A stream that is this far behind is closed, and the remaining claims are posted
	// again.
	maxRemovals = 100_000
	// openTime bounds the opening of a stream.
	openTime = 5 * time.Second
)

// link is the stream to one node. Its fields except node are guarded by remoteClaims.mu.
type link struct {
	f     *remoteClaims
	node  uint32
	ctx   context.Context
	end   context.CancelFunc
	wake  chan struct{} // capacity 1: there is something to send
	added map[task.ClaimID]bool
	gone  []broker.Hold
	idle  time.Duration
}

func newLink(f *remoteClaims, node uint32) *link {
	l := &link{f: f, node: node, wake: make(chan struct{}, 1), added: map[task.ClaimID]bool{}}
	l.ctx, l.end = context.WithCancel(f.forward.Life.Context())
	return l
}

func (l *link) add(k task.ClaimID) {
	l.added[k] = true
	l.poke()
}

// remove removes a claim that may have been sent.
func (l *link) remove(h broker.Hold) {
	if k := keyOf(h); l.added[k] {
		delete(l.added, k) // if it was sent before, it was removed since
		return
	}
	if l.gone = append(l.gone, h); len(l.gone) > maxRemovals {
		l.end()
	}
	l.poke()
}

func (l *link) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run serves the stream until it breaks.
func (l *link) run() {
	defer l.f.broken(l)
	defer l.end()
	opening := time.AfterFunc(openTime, l.end)
	s, err := l.f.peers.OpenStream(l.ctx, l.node, watchMethod)
	if !opening.Stop() || err != nil {
		return
	}
	l.f.forward.Life.Go(func() {
		defer l.end()
		l.receive(s)
	})
	for {
		select {
		case <-l.wake:
		case <-l.ctx.Done():
			return
		case <-s.Context().Done():
			return
		}
		for frame := l.f.frame(l); frame != nil; frame = l.f.frame(l) {
			b, err := verb.Encode(frame)
			if err == nil {
				err = s.Send(b)
			}
			if err != nil {
				return
			}
		}
	}
}

func (l *link) receive(s Stream) {
	for {
		b, err := s.Recv()
		if err != nil {
			return
		}
		var n notices
		if err := verb.Decode(b, &n); err != nil {
			l.f.log.Error("notices of another node can't be read", "node", l.node, "error", err)
			return
		}
		l.f.handleNotices(l, &n)
	}
}

// frame returns the next frame to send; nil: none.
func (f *remoteClaims) frame(l *link) *watchFrame {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(l.gone) == 0 && len(l.added) == 0 {
		return nil
	}
	n := min(len(l.gone), maxFrameClaims)
	p := &watchFrame{Remove: l.gone[:n:n]}
	if l.gone = l.gone[n:]; len(l.gone) > 0 {
		return p
	}
	l.gone = nil
	for k := range l.added {
		if len(p.Add) == maxFrameClaims {
			break
		}
		delete(l.added, k)
		if c, ok := f.claims[k]; ok {
			p.Add = append(p.Add, c.hold)
		}
	}
	return p
}

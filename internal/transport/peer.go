package transport

import (
	"context"
	"sync"
	"time"
)

const (
	// Messages without entries are small, and soon stale: a few for each of some thousand groups.
	smallCount, smallBytes = 8192, 4 << 20
	// Those with entries: the largest entry and some more.
	bigCount, bigBytes = 4096, 64 << 20
	// largest is up to where a message without entries counts as small.
	largest = 16 << 10
)

// peer is another member as we know it now. If it moves, it becomes another peer.
type peer struct {
	t      *Transport
	number uint32
	at     Address

	small, big, calls    *link
	smallQueue, bigQueue *queue

	lost  chan struct{} // has a place for one: messages were dropped
	clock clock

	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
}

func (t *Transport) newPeer(number uint32, at Address) *peer {
	p := &peer{
		t: t, number: number, at: at,
		small: t.newLink(at), big: t.newLink(at), calls: t.newLink(at),
		smallQueue: newQueue(smallCount, smallBytes), bigQueue: newQueue(bigCount, bigBytes),
		lost: make(chan struct{}, 1),
	}
	p.ctx, p.stop = context.WithCancel(t.ctx)
	p.running.Go(func() { p.carry(p.small, p.smallQueue) })
	p.running.Go(func() { p.carry(p.big, p.bigQueue) })
	p.running.Go(p.tellLosses)
	p.running.Go(p.keepTime)
	return p
}

// close ends the connections, and returns when nothing of the peer runs any more.
func (p *peer) close() {
	p.stop()
	var ends sync.WaitGroup
	for _, l := range []*link{p.small, p.big, p.calls} {
		ends.Go(l.close)
	}
	ends.Wait()
	p.running.Wait()
}

// silent cuts the connections of a peer that doesn't answer. One that is only being made has a time limit of its own.
func (p *peer) silent(made bool) {
	p.big.reset()
	p.calls.reset()
	if made {
		p.small.reset()
	}
}

// pause waits, and reports whether the peer is still in use.
func (p *peer) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// tellPause lies between two calls of Unreachable for one node.
const tellPause = time.Second

// tellLosses tells of dropped messages from a goroutine of its own: Send must not block, and who is told may.
func (p *peer) tellLosses() {
	for {
		select {
		case <-p.lost:
			p.t.cfg.Unreachable(p.number)
		case <-p.ctx.Done():
			return
		}
		if !p.pause(tellPause) {
			return
		}
	}
}

func (p *peer) miss() {
	select {
	case p.lost <- struct{}{}:
	default:
	}
}

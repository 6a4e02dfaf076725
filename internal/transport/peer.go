package transport

import (
	"context"
	"sync"
	"time"
)

const (
	// Messages without entries are small and soon stale: a few for each of some thousand groups.
	smallCount, smallBytes = 8192, 4 << 20
	// Messages with entries: the largest entry and some more.
	bigCount, bigBytes = 4096, 64 << 20
	// maxSmall is the maximum size of a message without entries that counts as small.
	maxSmall = 16 << 10
)

// peer is another member at its current address. If it moves, it becomes another peer.
type peer struct {
	t      *Transport
	number uint32
	at     Address

	small, big, calls    *link
	smallQueue, bigQueue *queue

	lost  chan struct{} // has room for one: messages were dropped
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
	p.running.Go(func() { p.sendLoop(p.small, p.smallQueue) })
	p.running.Go(func() { p.sendLoop(p.big, p.bigQueue) })
	p.running.Go(p.reportLosses)
	p.running.Go(p.pingLoop)
	return p
}

// close closes the connections, and returns when none of the peer's goroutines runs any more.
func (p *peer) close() {
	p.stop()
	var ends sync.WaitGroup
	for _, l := range []*link{p.small, p.big, p.calls} {
		ends.Go(l.close)
	}
	ends.Wait()
	p.running.Wait()
}

// cutLinks cuts the connections of a peer that doesn't answer. The small link is cut only if it was established:
// dialling has its own time limit.
func (p *peer) cutLinks(made bool) {
	p.big.reset()
	p.calls.reset()
	if made {
		p.small.reset()
	}
}

// pause waits for d, and reports whether the peer is still in use.
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

// lossPause is the pause between two calls of Unreachable for one node.
const lossPause = time.Second

// reportLosses reports dropped messages from a separate goroutine: Send must not block, and Unreachable may.
func (p *peer) reportLosses() {
	for {
		select {
		case <-p.lost:
			p.t.cfg.Unreachable(p.number)
		case <-p.ctx.Done():
			return
		}
		if !p.pause(lossPause) {
			return
		}
	}
}

func (p *peer) noteLoss() {
	select {
	case p.lost <- struct{}{}:
	default:
	}
}

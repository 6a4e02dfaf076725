package router

import (
	"context"
	"fmt"
	"sync"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/verb"
)

// claimWatcher watches claims for one other node: the serving end of a link.
type claimWatcher struct {
	r    *Router
	here LocalWatch
	wake chan struct{} // one place: there are notices

	mu    sync.Mutex
	lost  []broker.Lost
	moved map[uint32]bool // shards
	held  int
}

// ServeStream serves a stream that another node's router opened with Peers.OpenStream, until it ends.
func (r *Router) ServeStream(method string, s Stream) error {
	if method != watchMethod {
		return fmt.Errorf("streams of kind %q are not known", method)
	}
	g := &claimWatcher{r: r, wake: make(chan struct{}, 1), moved: map[uint32]bool{}}
	g.here = r.cfg.Broker.WatchClaims(g.onLost, g.onMoved)
	defer g.here.Close()
	ctx, cancel := context.WithCancel(s.Context())
	var sending sync.WaitGroup
	defer sending.Wait()
	defer cancel()
	sending.Go(func() { g.send(ctx, s) })
	for {
		b, err := s.Recv()
		if err != nil {
			return nil // the other node has gone, or comes again
		}
		var p watchFrame
		if err := verb.Decode(b, &p); err != nil {
			return fmt.Errorf("claims to be watched: %w", err)
		}
		if err := g.take(&p); err != nil {
			return err
		}
	}
}

// take takes over what a frame says. The memory of a stream is bounded by what it may hold at once: each of its claims can
// lead to one notice.
func (g *claimWatcher) take(p *watchFrame) error {
	for _, h := range p.Remove {
		if g.here.Remove(h.ID, h.Token) {
			g.count(-1)
		}
	}
	if g.count(len(p.Add)) > maxFarClaims+maxFrameClaims {
		return fmt.Errorf("more than %d claims are to be watched for one node", maxFarClaims)
	}
	for _, h := range p.Add {
		if g.here.Remove(h.ID, h.Token) { // posted twice
			g.count(-1)
		}
		if !g.here.Add(h) {
			g.onMoved([]broker.Hold{h})
		}
	}
	return nil
}

func (g *claimWatcher) count(n int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held += n
	return g.held
}

func (g *claimWatcher) onLost(l broker.Lost) {
	g.mu.Lock()
	g.lost = append(g.lost, l)
	g.held--
	g.mu.Unlock()
	g.poke()
}

func (g *claimWatcher) onMoved(claimed []broker.Hold) {
	g.mu.Lock()
	for _, h := range claimed {
		g.moved[h.ID.Shard()] = true
	}
	g.held -= len(claimed)
	g.mu.Unlock()
	g.poke()
}

func (g *claimWatcher) poke() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// send sends notices until ctx ends. If they can't be sent the stream is broken, which receiving finds out too.
func (g *claimWatcher) send(ctx context.Context, s Stream) {
	for {
		select {
		case <-g.wake:
		case <-ctx.Done():
			return
		}
		for n := g.next(); n != nil; n = g.next() {
			b, err := verb.Encode(n)
			if err == nil {
				err = s.Send(b)
			}
			if err != nil {
				return
			}
		}
	}
}

// next are the notices that wait; nil: none.
func (g *claimWatcher) next() *notices {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.lost) == 0 && len(g.moved) == 0 {
		return nil
	}
	n := min(len(g.lost), maxFrameClaims)
	out := &notices{Lost: g.lost[:n:n]}
	if g.lost = g.lost[n:]; len(g.lost) == 0 {
		g.lost = nil
	}
	for shard := range g.moved {
		leader, _, _ := g.r.cfg.Broker.Leader(shard)
		if uint32(leader) == g.r.cfg.Node {
			leader = 0 // it has come back: who asks again is welcome
		}
		out.Moved = append(out.Moved, broker.Elsewhere{Shard: shard, Node: uint32(leader)})
	}
	clear(g.moved)
	return out
}

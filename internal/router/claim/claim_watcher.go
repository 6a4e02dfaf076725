package claim

import (
	"context"
	"fmt"
	"sync"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/verb"
)

// claimWatcher watches claims for one other node: the serving end of a link.
type claimWatcher struct {
	claims *Claims
	here   LocalWatch
	wake   chan struct{} // capacity 1: there are notices

	mu    sync.Mutex
	lost  []broker.Lost
	moved map[uint32]bool // shards
	held  int
}

// ServeStream serves a stream that another node's router opened with Peers.OpenStream, until it ends.
func (c *Claims) ServeStream(method string, s Stream) error {
	if method != watchMethod {
		return fmt.Errorf("streams of kind %q are not known", method)
	}
	g := &claimWatcher{claims: c, wake: make(chan struct{}, 1), moved: map[uint32]bool{}}
	g.here = c.broker.WatchClaims(g.onLost, g.onMoved)
	defer g.here.Close()
	ctx, cancel := context.WithCancel(s.Context())
	var sending sync.WaitGroup
	defer sending.Wait()
	defer cancel()
	sending.Go(func() { g.send(ctx, s) })
	for {
		b, err := s.Recv()
		if err != nil {
			return nil // the other node is gone, or will reconnect
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

// take applies a frame. The memory of a stream is bounded by the claims that it may hold: each can lead to one notice.
func (g *claimWatcher) take(p *watchFrame) error {
	for _, h := range p.Remove {
		if g.here.Remove(h.ID, h.Token) {
			g.count(-1)
		}
	}
	if g.count(len(p.Add)) > maxRemoteClaims+maxFrameClaims {
		return fmt.Errorf("more than %d claims are to be watched for one node", maxRemoteClaims)
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

// send sends notices until ctx is done. If sending fails, the stream is broken, and Recv fails as well.
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

// next returns pending notices; nil: none.
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
		leader, _, _ := g.claims.broker.Leader(shard)
		if uint32(leader) == g.claims.forward.Node() {
			leader = 0 // it leads again: the claims may be posted again
		}
		out.Moved = append(out.Moved, broker.NotLeader{Shard: shard, Node: uint32(leader)})
	}
	clear(g.moved)
	return out
}

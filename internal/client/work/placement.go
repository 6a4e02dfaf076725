package work

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/route"
	"github.com/pawlq/pawl/internal/client/rpc"
)

// A stream works wherever it is: its node claims at the leaders of its queues' shards. But each push and each ending then takes an
// extra hop, so a worker's stream moves to the node that leads the shards that most of its tasks come from. It moves just as it is
// replaced after a silence: it is closed in an orderly way and reopened.

const (
	// firstCheck is how long a stream that was opened without such knowledge stays before it moves, laterCheck how often a stream is
	// checked. Both are randomized by a factor of 0.5 to 1.5, so that workers don't move in lockstep.
	firstCheck = 2 * time.Second
	laterCheck = 20 * time.Second
	// moveFactor is how many times as many tasks must come from shards that another node leads.
	moveFactor = 2
)

// Router is the part of route.Router that a Run needs.
type Router interface {
	// HasSeveralNodes records that the server has several nodes.
	HasSeveralNodes()
	// Knows reports whether a stream to a destination would reach its leader directly, as far as is known.
	Knows(route.Destination) bool
	// Forget forgets the leader of a destination.
	Forget(route.Destination)
	// LeaderNow returns the name of the node that leads a shard; "": not known.
	LeaderNow(ctx context.Context, shard uint32) string
	// Reach reports whether calls can go to a node directly.
	Reach(ctx context.Context, name string) bool
}

// placement tracks which shards a worker's tasks come from. Guarded by Run.mu.
type placement struct {
	pushed map[uint32]int // tasks since the last check, by shard; nil: not tracked
	shard  uint32         // of most of them, at the last check that found any
	known  bool
}

// count counts a task that was pushed.
func (p *placement) count(id string) {
	if p.pushed == nil {
		return
	}
	if shard, ok := convert.ShardOf(id); ok {
		p.pushed[shard]++
	}
}

// take returns the counts and resets them.
func (p *placement) take() map[uint32]int {
	counts, most := p.pushed, 0
	for shard, n := range counts {
		if n > most {
			p.shard, p.known, most = shard, true, n
		}
	}
	p.pushed = map[uint32]int{}
	return counts
}

// destination returns where the next stream belongs.
func (s *Run) destination() route.Destination {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.placement.known {
		return route.OfShard(s.placement.shard)
	}
	return route.OfShares(s.hello.Queues)
}

// header is the part of a stream that returns its header.
type header interface{ Header() (metadata.MD, error) }

// watchPlacement starts to check whether a stream that works is at the right node, if there are several.
func (s *Run) watchPlacement(ctx context.Context, background *sync.WaitGroup, stream header, toward route.Destination, renew chan<- struct{}) {
	md, err := stream.Header()
	at := md["pawl-node"]
	if err != nil || len(at) != 1 || s.cfg.Router == nil {
		return
	}
	s.cfg.Router.HasSeveralNodes()
	s.mu.Lock()
	s.placement.take()
	s.mu.Unlock()
	blind := !s.cfg.Router.Knows(toward)
	background.Go(func() { s.checkPlacement(ctx, at[0], blind, renew) })
}

// checkPlacement has the stream reopened when another node has led most of its tasks at two checks in a row. A stream that was opened
// blindly moves at the first.
func (s *Run) checkPlacement(ctx context.Context, at string, blind bool, renew chan<- struct{}) {
	pause, last := laterCheck, ""
	if blind {
		pause, last = firstCheck, anyNode
	}
	for rpc.Sleep(ctx, nil, pause/2+rand.N(pause)) {
		better := s.betterNode(ctx, at)
		if better != "" && (last == better || last == anyNode) && s.cfg.Router.Reach(ctx, better) {
			s.cfg.Log.Debug("work stream moves", "worker", s.cfg.Name, "from", at, "to", better)
			select {
			case renew <- struct{}{}:
			default: // it is about to be reopened anyway
			}
			return
		}
		if last != anyNode || better != "" {
			last = better
		}
		pause = laterCheck
	}
}

// anyNode stands for any better node.
const anyNode = "*"

// betterNode returns the name of the node where the stream should be, "" if it is there already.
func (s *Run) betterNode(ctx context.Context, at string) string {
	s.mu.Lock()
	counts := s.placement.take()
	s.mu.Unlock()
	byNode, best := map[string]int{}, at
	for shard, n := range counts {
		if leader := s.cfg.Router.LeaderNow(ctx, shard); leader != "" {
			byNode[leader] += n
		}
	}
	for name, n := range byNode {
		if n > byNode[best] {
			best = name
		}
	}
	if best == at || byNode[best] < moveFactor*byNode[at] {
		return ""
	}
	return best
}

// leave handles a stream's end. If it broke, the next one need not go to the same node, and is replaced sooner if it stays silent.
func (s *Run) leave(toward route.Destination, err error) {
	if errors.Is(err, io.EOF) {
		return
	}
	if s.cfg.Router != nil {
		s.cfg.Router.Forget(toward)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contact.silent = 0
}

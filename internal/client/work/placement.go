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

// A stream serves wherever it is: the node that has it claims at the leaders of its queues' shards. But that costs a detour for
// each push and each ending, so that a worker's stream moves to the node that leads where most of its tasks come from.
// It moves as if it had gone deaf: it is closed in good order and opened anew.

const (
	// firstPlace is how long a stream that was opened without knowing better stays before it moves, laterPlace how often it is
	// asked whether it should. Both take from half to one and a half of it, so that workers don't move in step.
	firstCheck = 2 * time.Second
	laterCheck = 20 * time.Second
	// worthMoving is how many times as many tasks must come from shards that another node leads.
	moveFactor = 2
)

// Router knows the nodes of the cluster, as route.Router does.
type Router interface {
	// HasSeveralNodes tells it that the server has.
	HasSeveralNodes()
	// Knows says whether a stream was opened at the leader of where it belongs, as far as that is known.
	Knows(route.Destination) bool
	// Forget forgets who leads where something belongs.
	Forget(route.Destination)
	// LeaderNow names the node that leads a shard; "": not known.
	LeaderNow(ctx context.Context, shard uint32) string
	// Reach says whether calls can go to a node directly.
	Reach(ctx context.Context, name string) bool
}

// placement is where a worker's tasks come from. Guarded by Run.mu.
type placement struct {
	pushed map[uint32]int // tasks since the last question, by shard; nil: nobody asks
	shard  uint32         // of most of them, the last time that there were any
	known  bool
}

// count notes a task that was pushed.
func (p *placement) count(id string) {
	if p.pushed == nil {
		return
	}
	if shard, ok := convert.ShardOf(id); ok {
		p.pushed[shard]++
	}
}

// take gives the counts and begins anew.
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

// destination is where the next stream belongs.
func (s *Run) destination() route.Destination {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.placement.known {
		return route.OfShard(s.placement.shard)
	}
	return route.OfShares(s.hello.Queues)
}

// header is the part of a stream that tells its header.
type header interface{ Header() (metadata.MD, error) }

// watchPlacement begins to ask whether a stream that works is at the right node, if there are several.
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

// checkPlacement has the stream opened anew when another node has led most of its tasks for two questions in a row. A stream that was
// opened blindly moves with the first.
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
			default: // it is renewed anyway
			}
			return
		}
		if last != anyNode || better != "" {
			last = better
		}
		pause = laterCheck
	}
}

// anyNode stands for whichever node is better.
const anyNode = "*"

// betterNode names the node where the stream should be, "" if it is right where it is.
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

// leave takes note of a stream's end. If it broke, the next one need not go to the same node, and is not trusted for as long.
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

package pawl

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"
)

// A stream serves wherever it is: the node that has it claims at the leaders of its queues' shards. But that costs a detour for
// each push and each ending, so that a worker's stream moves to the node that leads where most of its tasks come from.
// It moves as if it had gone deaf: it is closed in good order and opened anew.

const (
	// firstPlace is how long a stream that was opened without knowing better stays before it moves, laterPlace how often it is
	// asked whether it should. Both take from half to one and a half of it, so that workers don't move in step.
	firstPlace = 2 * time.Second
	laterPlace = 20 * time.Second
	// worthMoving is how many times as many tasks must come from shards that another node leads.
	worthMoving = 2
)

// place is where a worker's tasks come from. Guarded by shift.mu.
type place struct {
	pushed map[uint32]int // tasks since the last question, by shard; nil: nobody asks
	shard  uint32         // of most of them, the last time that there were any
	known  bool
}

// count notes a task that was pushed.
func (p *place) count(id string) {
	if p.pushed == nil {
		return
	}
	if shard, ok := shardOf(id); ok {
		p.pushed[shard]++
	}
}

// take gives the counts and begins anew.
func (p *place) take() map[uint32]int {
	counts, most := p.pushed, 0
	for shard, n := range counts {
		if n > most {
			p.shard, p.known, most = shard, true, n
		}
	}
	p.pushed = map[uint32]int{}
	return counts
}

// aim is where the next stream belongs.
func (s *shift) aim() aim {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.place.known {
		return aim{shard: s.place.shard, known: true}
	}
	return aimOfShares(s.hello.Queues)
}

// header is the part of a stream that tells its header.
type header interface{ Header() (metadata.MD, error) }

// settleDown begins to ask whether a stream that works is at the right node, if there are several.
func (s *shift) settleDown(ctx context.Context, background *sync.WaitGroup, stream header, toward aim, renew chan<- struct{}) {
	md, err := stream.Header()
	at := md["pawl-node"]
	if err != nil || len(at) != 1 || s.client.direct == nil {
		return
	}
	s.client.direct.several.Store(true)
	s.mu.Lock()
	s.place.take()
	s.mu.Unlock()
	blind := !s.client.direct.knows(toward)
	background.Go(func() { s.keepPlace(ctx, at[0], blind, renew) })
}

// keepPlace has the stream opened anew when another node has led most of its tasks for two questions in a row. A stream that was
// opened blindly moves with the first.
func (s *shift) keepPlace(ctx context.Context, at string, blind bool, renew chan<- struct{}) {
	pause, last := laterPlace, ""
	if blind {
		pause, last = firstPlace, anyNode
	}
	for sleep(ctx, nil, pause/2+rand.N(pause)) {
		better := s.better(ctx, at)
		if better != "" && (last == better || last == anyNode) && s.client.direct.reach(ctx, better) {
			s.cfg.Logger.Debug("work stream moves", "worker", s.cfg.Name, "from", at, "to", better)
			select {
			case renew <- struct{}{}:
			default: // it is renewed anyway
			}
			return
		}
		if last != anyNode || better != "" {
			last = better
		}
		pause = laterPlace
	}
}

// anyNode stands for whichever node is better.
const anyNode = "*"

// better names the node where the stream should be, "" if it is right where it is.
func (s *shift) better(ctx context.Context, at string) string {
	s.mu.Lock()
	counts := s.place.take()
	s.mu.Unlock()
	byNode, best := map[string]int{}, at
	for shard, n := range counts {
		if leader := s.client.direct.leaderNow(ctx, shard); leader != "" {
			byNode[leader] += n
		}
	}
	for name, n := range byNode {
		if n > byNode[best] {
			best = name
		}
	}
	if best == at || byNode[best] < worthMoving*byNode[at] {
		return ""
	}
	return best
}

// leave takes note of a stream's end. If it broke, the next one need not go to the same node, and is not trusted for as long.
func (s *shift) leave(toward aim, err error) {
	if err == nil || errors.Is(err, io.EOF) {
		return
	}
	if s.client.direct != nil {
		s.client.direct.forget(toward)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contact.silent = 0
}

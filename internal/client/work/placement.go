package work

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/route"
	"github.com/pawlq/pawl/internal/client/rpc"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
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

// placement decides at which node a worker's stream belongs, by the shards that its tasks come from.
type placement struct {
	router Router // nil: there is no choice
	hello  *pawlv1.WorkHello
	worker string
	log    *slog.Logger

	mu     sync.Mutex
	pushed map[uint32]int // tasks since the last check, by shard; nil: not tracked
	shard  uint32         // of most of them, at the last check that found any
	known  bool
}

// count counts a task that was pushed.
func (p *placement) count(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pushed == nil {
		return
	}
	if shard, ok := convert.ShardOf(id); ok {
		p.pushed[shard]++
	}
}

// take returns the counts and resets them.
func (p *placement) take() map[uint32]int {
	p.mu.Lock()
	defer p.mu.Unlock()
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
func (p *placement) destination() route.Destination {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known {
		return route.OfShard(p.shard)
	}
	return route.OfShares(p.hello.Queues)
}

// forget forgets where a destination is.
func (p *placement) forget(d route.Destination) {
	if p.router != nil {
		p.router.Forget(d)
	}
}

// header is the part of a stream that returns its header.
type header interface{ Header() (metadata.MD, error) }

// watch starts to check whether a stream that works is at the right node, if there are several.
func (p *placement) watch(ctx context.Context, background *sync.WaitGroup, stream header, toward route.Destination, renew chan<- struct{}) {
	md, err := stream.Header()
	at := md["pawl-node"]
	if err != nil || len(at) != 1 || p.router == nil {
		return
	}
	p.router.HasSeveralNodes()
	p.take()
	blind := !p.router.Knows(toward)
	background.Go(func() { p.check(ctx, at[0], blind, renew) })
}

// check has the stream reopened when another node has led most of its tasks at two checks in a row. A stream that was opened
// blindly moves at the first.
func (p *placement) check(ctx context.Context, at string, blind bool, renew chan<- struct{}) {
	pause, last := laterCheck, ""
	if blind {
		pause, last = firstCheck, anyNode
	}
	for rpc.Sleep(ctx, nil, pause/2+rand.N(pause)) {
		better := p.betterNode(ctx, at)
		if better != "" && (last == better || last == anyNode) && p.router.Reach(ctx, better) {
			p.log.Debug("work stream moves", "worker", p.worker, "from", at, "to", better)
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
func (p *placement) betterNode(ctx context.Context, at string) string {
	counts := p.take()
	byNode, best := map[string]int{}, at
	for shard, n := range counts {
		if leader := p.router.LeaderNow(ctx, shard); leader != "" {
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

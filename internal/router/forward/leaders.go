package forward

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Leaders knows which nodes lead the shards: by this node's replicas, otherwise by what others last said. It has at most as many entries as
// there are shard numbers.
type Leaders struct {
	node   uint32 // this one
	broker Broker
	system func() uint32 // the leader of the system shard by this node's replica; 0: it knows none

	mu         sync.RWMutex
	last       map[uint32]uint32
	leaderless map[uint32]time.Time // shards whose leader a call did not find, and since when
}

func (l *Leaders) of(shard uint32) uint32 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.last[shard]
}

// leaderlessSince returns since when, at the latest, calls have not found a leader; zero: none has failed to since one was seen.
func (l *Leaders) leaderlessSince(shard uint32) time.Time {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.leaderless[shard]
}

func (l *Leaders) isLeaderless(shard uint32) bool { return !l.leaderlessSince(shard).IsZero() }

// saw records that a node leads a shard.
func (l *Leaders) saw(shard, node uint32) {
	if l.of(shard) != node || l.isLeaderless(shard) {
		l.note(shard, node, time.Time{})
	}
}

// heard records who leads a shard according to another node; 0: unknown.
func (l *Leaders) heard(shard, node uint32) { l.note(shard, node, l.leaderlessSince(shard)) }

// lost records that a call has found no leader.
func (l *Leaders) lost(shard uint32, since time.Time) {
	if before := l.leaderlessSince(shard); !before.IsZero() {
		since = before
	}
	l.note(shard, 0, since)
}

func (l *Leaders) note(shard, node uint32, dark time.Time) {
	if shard > task.MaxShard {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		l.last, l.leaderless = map[uint32]uint32{}, map[uint32]time.Time{}
	}
	l.last[shard], l.leaderless[shard] = node, dark
}

// Leads reports whether this node leads a shard, as far as it knows.
func (l *Leaders) Leads(shard uint32) bool {
	node, _, _ := l.broker.Leader(shard)
	return uint32(node) == l.node
}

// here returns the leader of a shard according to this node's replica; 0: it knows none.
func (l *Leaders) here(shard uint32) uint32 {
	if shard == SystemShard {
		return l.system()
	}
	node, _, _ := l.broker.Leader(shard)
	return uint32(node)
}

// LeaderOf returns the leader of a shard as far as is known here: by its replica on this node, otherwise by what others last said.
func (l *Leaders) LeaderOf(shard uint32) uint32 {
	if node := l.here(shard); node != 0 {
		return node
	}
	return l.of(shard)
}

// LeadsNoMore records that a node no longer leads a shard, according to itself: the leader is the given node; 0: unknown.
func (l *Leaders) LeadsNoMore(node uint32, now broker.NotLeader) {
	if l.of(now.Shard) == node || now.Node != 0 {
		l.heard(now.Shard, now.Node)
	}
}

// LeaderElsewhere returns the other node that leads a shard, as far as is known without asking; 0: this node leads, or it is unknown.
func (l *Leaders) LeaderElsewhere(shard uint32) (node uint64) {
	if leader := l.LeaderOf(shard); leader != l.node {
		return uint64(leader)
	}
	return 0
}

// Verbs are the calls by which nodes ask each other who leads a shard.
var Verbs verb.Table[*Forwarder]

var (
	// whoLeads returns a shard's leader, term and index, from that leader.
	whoLeads = verb.New(&Verbs, verb.Rule{Name: "leader", Idempotent: true},
		func(f *Forwarder, _ context.Context, q ofShard) (leaderAnswer, error) {
			node, term, index := f.cfg.Broker.Leader(q.Shard)
			if uint32(node) != f.cfg.Node {
				return leaderAnswer{}, &broker.NotLeader{Shard: q.Shard, Node: uint32(node)}
			}
			return leaderAnswer{node, term, index}, nil
		})
	// knownLeader returns a shard's leader as far as a node knows; 0: it does not.
	knownLeader = verb.New(&Verbs, verb.Rule{Name: "known-leader", Where: verb.Node, Idempotent: true},
		func(f *Forwarder, _ context.Context, q knownTo) (uint32, error) {
			return f.Leaders.here(q.Shard), nil
		})
)

type ofShard struct{ Shard uint32 }

func (q *ofShard) TargetShard() uint32 { return q.Shard }

type knownTo struct {
	verb.AtNode
	Shard uint32
}

type leaderAnswer struct{ Node, Term, Index uint64 }

// LeaderTime bounds how long Leader asks others: it is for pages and probes, which can do without.
const LeaderTime = 500 * time.Millisecond

// Leader returns the leader of a shard: by this node's replica, otherwise by asking others; 0 if it is unknown.
func (f *Forwarder) Leader(ctx context.Context, shard uint32) (node, term, index uint64) {
	if node, term, index = f.cfg.Broker.Leader(shard); node != 0 {
		return node, term, index
	}
	ctx, cancel := context.WithTimeout(ctx, LeaderTime)
	defer cancel()
	c := whoLeads.Make(ofShard{shard})
	if f.seek(ctx, c) == nil {
		return c.Resp.Node, c.Resp.Term, c.Resp.Index
	}
	return uint64(f.Leaders.of(shard)), 0, 0
}

// MaxMapAge is how old this node's copy of the map may be: an older one may route every call to the wrong node.
const MaxMapAge = 30 * time.Second

// Ready returns why this node should get no calls now; nil: it should.
func (f *Forwarder) Ready() error {
	if age := f.cfg.Map.Age(); age > MaxMapAge {
		return task.Unavailable(time.Second, "the map of the cluster is %s old", age.Truncate(time.Second))
	}
	for _, shard := range append([]uint32{SystemShard}, f.cfg.Map.Shards()...) {
		if slices.Contains(f.cfg.Map.Replicas(shard), f.cfg.Node) && f.Leaders.here(shard) == 0 {
			return task.Unavailable(time.Second, "%s: no leader answers", shardText(shard))
		}
	}
	return nil
}

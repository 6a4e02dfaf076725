package claim

import (
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/task"
)

// A claim is watched where its shard is led. The broker watches those of shards that this node leads, and hands them over when the leader
// changes. Those of other nodes' shards are posted there, all over one stream per node (link.go), on which notices come back
// (claim_watcher.go is the other end). When a stream breaks or a leader changes, the claims are posted again; the new leader then checks
// whether they still hold, so that nothing that happened in between is missed.

// claimWatch notifies a holder of claims when one of them ends without its doing, wherever its shard is led.
type claimWatch struct {
	claims *Claims
	here   LocalWatch
	lost   func(broker.Lost)

	// Guarded by remoteClaims.mu.
	remote map[task.ClaimID]bool
	closed bool
}

func keyOf(h broker.Hold) task.ClaimID { return task.ClaimID{Task: h.ID, Token: h.Token} }

// WatchClaims starts a watch without claims. lost is called for each watched claim that ends without its holder's doing, on a shard's loop,
// with locks held: it must not block, nor call the watch.
func (c *Claims) WatchClaims(lost func(broker.Lost)) interface {
	Add(h broker.Hold)
	Remove(id task.ID, t task.Token)
	Close()
} {
	w := &claimWatch{claims: c, lost: lost, remote: map[task.ClaimID]bool{}}
	w.here = c.broker.WatchClaims(w.notify, func(claimed []broker.Hold) { c.remote.add(w, claimed...) })
	return w
}

// Add watches a claim.
func (w *claimWatch) Add(h broker.Hold) {
	if !w.claims.forward.Leads(h.ID.Shard()) || !w.here.Add(h) {
		w.claims.remote.add(w, h)
	}
}

// Remove stops watching a claim.
func (w *claimWatch) Remove(id task.ID, t task.Token) {
	if !w.here.Remove(id, t) {
		w.claims.remote.remove(w, id, t)
	}
}

// Close stops watching all claims.
func (w *claimWatch) Close() {
	w.here.Close()
	w.claims.remote.drop(w)
}

func (w *claimWatch) notify(l broker.Lost) {
	if l.Reason == task.StaleCompleted {
		return // its holder ended it, and knows
	}
	w.lost(l)
}

const (
	// assignEvery is how often to check whether claims are posted where they belong: a holder must learn of a loss within a second.
	assignEvery = 100 * time.Millisecond
	// maxRemoteClaims bounds the claims that are watched at other nodes. The holders of others learn of losses when they settle or extend.
	maxRemoteClaims = 200_000
	// linkIdle is how long a stream without claims is kept.
	linkIdle = time.Minute
)

// remoteClaims holds the claims of shards that other nodes lead.
type remoteClaims struct {
	forward *forward.Forwarder
	peers   Peers
	log     *slog.Logger

	mu      sync.Mutex
	claims  map[task.ClaimID]remoteClaim
	byShard map[uint32]*shardClaims // by shard
	links   map[uint32]*link        // by node
	given   map[localClaim]bool     // those that the local broker is being given
	running bool                    // the goroutine that posts claims
	full    time.Time               // when it was last logged that there are too many
}

type remoteClaim struct {
	hold    broker.Hold
	watches []*claimWatch // at least one
}

// localClaim is a watch of a claim whose shard this node has come to lead.
type localClaim struct {
	w    *claimWatch
	hold broker.Hold
}

// shardClaims is where the claims of a shard are watched.
type shardClaims struct {
	shard  uint32
	node   uint32 // 0: at none
	failed uint32 // the node that was last tried in vain, not to be tried first
	turn   int    // of the replicas, when the leader is unknown
	claims map[task.ClaimID]bool
}

func (f *remoteClaims) add(w *claimWatch, claimed ...broker.Hold) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.addLocked(w, claimed...)
}

func (f *remoteClaims) addLocked(w *claimWatch, claimed ...broker.Hold) {
	if w.closed {
		return
	}
	for _, h := range claimed {
		if len(f.claims) >= maxRemoteClaims {
			if time.Since(f.full) > time.Minute {
				f.full = time.Now()
				f.log.Warn("too many claims of other nodes' shards are held here: some losses are reported late", "most", maxRemoteClaims)
			}
			return
		}
		f.put(w, h)
	}
	if !f.running && f.forward.Life.Context().Err() == nil {
		f.running = true
		f.forward.Life.Go(f.run)
	}
}

func (f *remoteClaims) put(w *claimWatch, h broker.Hold) {
	if f.claims == nil {
		f.claims, f.byShard, f.links = map[task.ClaimID]remoteClaim{}, map[uint32]*shardClaims{}, map[uint32]*link{}
	}
	k := keyOf(h)
	if w.remote[k] {
		return
	}
	w.remote[k] = true
	if c, known := f.claims[k]; known {
		c.watches = append(c.watches, w)
		f.claims[k] = c
		return
	}
	shard := h.ID.Shard()
	p := f.byShard[shard]
	if p == nil {
		p = &shardClaims{shard: shard, claims: map[task.ClaimID]bool{}, turn: rand.N(1 << 10)}
		f.byShard[shard] = p
	}
	f.claims[k], p.claims[k] = remoteClaim{h, []*claimWatch{w}}, true
	if l := f.links[p.node]; l != nil {
		l.add(k)
	}
}

// take removes a claim and all its watches, also from what the node where it was posted watches.
func (f *remoteClaims) take(k task.ClaimID) (remoteClaim, bool) {
	c, ok := f.claims[k]
	if !ok {
		return c, false
	}
	p := f.byShard[k.Task.Shard()]
	delete(f.claims, k)
	delete(p.claims, k)
	for _, w := range c.watches {
		delete(w.remote, k)
	}
	if l := f.links[p.node]; l != nil {
		l.remove(c.hold)
	}
	if len(p.claims) == 0 {
		delete(f.byShard, p.shard)
	}
	return c, true
}

func (f *remoteClaims) remove(w *claimWatch, id task.ID, t task.Token) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := task.ClaimID{Task: id, Token: t}
	for at := range f.given {
		if at.w == w && keyOf(at.hold) == k {
			delete(f.given, at)
		}
	}
	f.unwatch(w, k)
}

// unwatch removes a watch of a claim.
func (f *remoteClaims) unwatch(w *claimWatch, k task.ClaimID) {
	if !w.remote[k] {
		return
	}
	c := f.claims[k]
	if len(c.watches) == 1 {
		f.take(k)
		return
	}
	delete(w.remote, k)
	c.watches = slices.DeleteFunc(c.watches, func(other *claimWatch) bool { return other == w })
	f.claims[k] = c
}

// drop ends a watch.
func (f *remoteClaims) drop(w *claimWatch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.closed = true
	for k := range w.remote {
		f.unwatch(w, k)
	}
	maps.DeleteFunc(f.given, func(at localClaim, _ bool) bool { return at.w == w })
}

// run posts claims where they belong until there are none, and no streams.
func (f *remoteClaims) run() {
	tick := time.NewTicker(assignEvery)
	defer tick.Stop()
	for f.turn() {
		select {
		case <-tick.C:
		case <-f.forward.Life.Context().Done():
		}
	}
}

// turn checks all posts once; false if there is nothing to check.
func (f *remoteClaims) turn() bool {
	local, goOn := f.assign()
	for _, at := range local {
		f.madeLocal(at, at.w.here.Add(at.hold))
	}
	return goOn
}

// madeLocal completes what assign has begun, once the broker was given the claim. The watch may have been removed meanwhile.
func (f *remoteClaims) madeLocal(at localClaim, accepted bool) {
	f.mu.Lock()
	wanted := f.given[at]
	delete(f.given, at)
	if wanted && !accepted {
		f.addLocked(at.w, at.hold)
	}
	f.mu.Unlock()
	if accepted && !wanted {
		at.w.here.Remove(at.hold.ID, at.hold.Token)
	}
}

// assign assigns each post a node, and returns the watches of claims that belong to this one.
func (f *remoteClaims) assign() (local []localClaim, goOn bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.forward.Life.Context().Err() != nil || len(f.byShard) == 0 && len(f.links) == 0 {
		for _, l := range f.links {
			l.end()
		}
		f.running = false
		return nil, false
	}
	for _, p := range f.byShard {
		node := f.nodeFor(p)
		switch {
		case node == p.node || node == 0:
		case node == f.forward.Node():
			for k := range p.claims {
				c, _ := f.take(k)
				for _, w := range c.watches {
					local = append(local, localClaim{w, c.hold})
				}
			}
		default:
			f.move(p, node)
		}
	}
	for _, l := range f.links {
		if !f.used(l.node) {
			l.idle += assignEvery
		} else {
			l.idle = 0
		}
		if l.idle > linkIdle {
			l.end()
		}
	}
	for _, at := range local {
		if f.given == nil {
			f.given = map[localClaim]bool{}
		}
		f.given[at] = true
	}
	return local, true
}

func (f *remoteClaims) used(node uint32) bool {
	for _, p := range f.byShard {
		if p.node == node {
			return true
		}
	}
	return false
}

// nodeFor chooses where the claims of a shard belong; 0: unchanged.
func (f *remoteClaims) nodeFor(p *shardClaims) uint32 {
	leader := f.forward.LeaderOf(p.shard)
	if leader != 0 && leader != p.failed {
		return leader
	}
	failed := p.failed
	p.failed = 0 // it will be tried again, after another
	if p.node != 0 {
		return 0
	}
	replicas := f.forward.Replicas(p.shard)
	for range replicas {
		p.turn++
		if node := replicas[p.turn%len(replicas)]; node != f.forward.Node() && node != failed {
			return node
		}
	}
	return 0
}

// move posts the claims of a shard at another node.
func (f *remoteClaims) move(p *shardClaims, node uint32) {
	if old := f.links[p.node]; old != nil {
		for k := range p.claims {
			old.remove(f.claims[k].hold)
		}
	}
	p.node = node
	l := f.links[node]
	if l == nil {
		l = newLink(f, node)
		f.links[node] = l
		f.forward.Life.Go(l.run)
	}
	for k := range p.claims {
		l.add(k)
	}
}

// broken records that a stream has ended: its claims have to be posted again.
func (f *remoteClaims) broken(l *link) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.links[l.node] == l {
		delete(f.links, l.node)
	}
	for _, p := range f.byShard {
		if p.node == l.node {
			p.node, p.failed = 0, l.node
		}
	}
}

// handleNotices handles notices from a stream.
func (f *remoteClaims) handleNotices(l *link, n *notices) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.links[l.node] != l {
		return
	}
	for _, lost := range n.Lost {
		k := task.ClaimID{Task: lost.ID, Token: lost.Token}
		c, ok := f.claims[k]
		if p := f.byShard[lost.ID.Shard()]; ok && p.node == l.node {
			f.take(k)
			for _, w := range c.watches {
				w.notify(lost)
			}
		}
	}
	for _, m := range n.Moved {
		if p := f.byShard[m.Shard]; p != nil && p.node == l.node {
			p.node, p.failed = 0, l.node
			f.forward.LeadsNoMore(l.node, m)
		}
	}
}

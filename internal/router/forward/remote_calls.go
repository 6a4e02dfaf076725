package forward

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A node that hangs answers no call and closes no connection. Once the other replicas have elected another leader, calls to it are given
// up. A node whose own replica does not know asks them.

const (
	// RemoteCheckEvery is how often calls that others have not answered yet are checked.
	RemoteCheckEvery = 250 * time.Millisecond
	// DeposedGrace is how long a node that no longer leads may take to say so.
	DeposedGrace = 500 * time.Millisecond
	// AskAfter is how long no call may have been answered before the other replicas are asked who leads, and how often they are.
	AskAfter = time.Second
)

// ErrNewLeader is the cause with which a call to another node ends when that node no longer leads the shard.
var ErrNewLeader = errors.New("another node leads the shard meanwhile")

// remoteCalls holds the calls that other nodes have not answered yet.
type remoteCalls struct {
	life    *Lifetime
	leaders *Leaders
	ask     func(destination) uint32 // which third node leads according to the other replicas; 0: none

	mu       sync.Mutex
	by       map[destination]*remoteCall
	watching bool
}

type destination struct{ shard, node uint32 }

// remoteCall is the calls to one node on one shard. Its fields except ctx are guarded by remoteCalls.mu.
type remoteCall struct {
	ctx    context.Context
	end    context.CancelCauseFunc
	calls  int
	leader uint32    // according to this node's replica when the first of them was made
	since  time.Time // when that changed to a third node; zero: it did not
	quiet  time.Time // when a call last ended, or the other replicas were last asked
}

// begin returns a context for a call to another node; leave must be called when the call has returned.
func (a *remoteCalls) begin(ctx context.Context, to destination) (_ context.Context, leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.watching {
		a.watching = true
		a.life.Go(a.watch)
	}
	g := a.by[to]
	if g == nil {
		if a.by == nil {
			a.by = map[destination]*remoteCall{}
		}
		g = &remoteCall{leader: a.leaders.here(to.shard), quiet: time.Now()}
		g.ctx, g.end = context.WithCancelCause(a.life.ctx)
		a.by[to] = g
	}
	g.calls++
	ctx, cancel := context.WithCancelCause(ctx)
	forget := context.AfterFunc(g.ctx, func() { cancel(context.Cause(g.ctx)) })
	return ctx, func() {
		forget()
		cancel(nil)
		a.leave(to, g)
	}
}

func (a *remoteCalls) leave(to destination, g *remoteCall) {
	a.mu.Lock()
	defer a.mu.Unlock()
	g.quiet = time.Now()
	if g.calls--; g.calls == 0 {
		g.end(nil)
		if a.by[to] == g {
			delete(a.by, to)
		}
	}
}

// watch checks the calls as long as there are any.
func (a *remoteCalls) watch() {
	for more := true; more; more = a.check() {
		a.life.Sleep(a.life.ctx, RemoteCheckEvery)
	}
}

// check cancels the calls to nodes that were left behind.
func (a *remoteCalls) check() (more bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for to, g := range a.by {
		switch leader := a.leaders.here(to.shard); {
		case leader == 0 && a.leaders.of(to.shard) == to.node && now.Sub(g.quiet) >= AskAfter:
			g.quiet = now
			a.life.Go(func() { a.askOthers(to, g, now) })
			fallthrough
		case leader == 0 || leader == to.node || leader == g.leader:
			g.since = time.Time{}
		case g.since.IsZero():
			g.since = now
		case now.Sub(g.since) >= DeposedGrace:
			g.end(ErrNewLeader)
			delete(a.by, to)
		}
	}
	a.watching = len(a.by) > 0 && a.life.ctx.Err() == nil
	return a.watching
}

// askOthers ends the calls to a node if another one leads according to the other replicas, and no call has ended since they were asked.
func (a *remoteCalls) askOthers(to destination, g *remoteCall, asked time.Time) {
	leader := a.ask(to)
	a.mu.Lock()
	defer a.mu.Unlock()
	if leader == 0 || a.by[to] != g || g.quiet != asked {
		return
	}
	a.leaders.heard(to.shard, leader)
	g.end(ErrNewLeader)
	delete(a.by, to)
}

// leaderByOthers returns which third node leads a shard, according to the replicas other than the one on a node; 0: none, or they disagree.
func (f *Forwarder) leaderByOthers(than destination) (leader uint32) {
	var others []Node
	for _, n := range f.Replicas(than.shard) {
		if n != than.node {
			others = append(others, Node{Number: n})
		}
	}
	known := AskNodes(f.Life.ctx, f, AskAfter, others, knownLeader, knownTo{Shard: than.shard})
	for _, n := range known.Value {
		switch n {
		case 0: // no answer, or none is known
		case than.node:
			return 0
		default:
			leader = n
		}
	}
	return leader
}

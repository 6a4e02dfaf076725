package forward

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A node that hangs answers no call and closes no connection. Once the other replicas have elected another leader, calls to it are given
// up.

const (
	// RemoteCheckEvery is how often calls that others have not answered yet are checked.
	RemoteCheckEvery = 250 * time.Millisecond
	// DeposedGrace is how long a node that no longer leads may take to say so.
	DeposedGrace = 500 * time.Millisecond
)

// ErrNewLeader is the cause with which a call to another node ends when that node no longer leads the shard.
var ErrNewLeader = errors.New("another node leads the shard meanwhile")

// remoteCalls holds the calls that other nodes have not answered yet.
type remoteCalls struct {
	life    *Lifetime
	leaders *Leaders

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
		g = &remoteCall{leader: a.leaders.here(to.shard)}
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

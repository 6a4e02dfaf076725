package broker

import (
	"container/list"
	"context"
	"errors"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/store"
)

// Claims that find nothing wait in the leader's memory, in order of arrival. The round that makes a task ready serves them before
// it is sealed, and they are answered once it is committed.

// waiter is one claim waiting for its answer.
type waiter struct {
	call    engine.ClaimRequest
	watch   bool // waits only until a task is ready, and claims nothing
	types   string
	arrival uint64
	places  []*list.Element // in the lists of its queues, while it is parked; guarded by waitingClaims.mu
	state   atomic.Int32
	out     chan delivery // one place
	again   chan struct{} // one place: the leader's memory is gone, claim again
}

// States of a waiter. Whoever moves it out of stateWaiting owns what follows.
const (
	stateWaiting int32 = iota
	stateServed
	stateGone
)

type delivery struct {
	tasks []Claimed
	at    Stamp
	err   error // the claim panicked
}

type serving struct {
	w     *waiter
	tasks []Claimed
}

func newWaiter(c engine.ClaimRequest) *waiter {
	types := slices.Clone(c.Types)
	slices.Sort(types)
	return &waiter{call: c, types: strings.Join(types, "\x00"), out: make(chan delivery, 1), again: make(chan struct{}, 1)}
}

// Claim claims tasks of one shard, waiting up to wait for the first. If there are none in time, the answer is empty, not an error.
//
// When ctx ends while claims are on their way, they are either released immediately without using up an attempt, or returned as if
// ctx had not ended: a caller that can't use them settles them with GiveBack.
func (b *Broker) Claim(ctx context.Context, shardID uint32, c ClaimCall, wait time.Duration) ([]Claimed, Stamp, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return nil, Stamp{}, err
	}
	var timeout <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		timeout = timer.C
	}
	for {
		w := newWaiter(c)
		d, done, err := r.claimOnce(ctx, w, wait > 0, timeout)
		if done || err != nil {
			return d.tasks, d.at, err
		}
	}
}

// claimOnce runs a claim in a round and waits for its answer. If done is false, the claim must be repeated.
func (r *replica) claimOnce(ctx context.Context, w *waiter, park bool, timeout <-chan time.Time) (d delivery, done bool, err error) {
	again, at, err := changeOf(ctx, r, w.call.Namespace, func(round *engine.Round) (again []Claimed, err error) {
		w.call.Entropy = rand.Uint64()
		r.polls.note(w, round.Now())
		got, repeat := engine.ClaimTasks(round, &w.call)
		switch {
		case repeat:
			return got, nil
		case len(got) > 0:
			r.served = append(r.served, serving{w, got})
		case park:
			r.claims.park(w)
		}
		return nil, nil
	})
	if err != nil {
		return d, true, r.giveUp(w, err)
	}
	if again != nil {
		return delivery{tasks: again, at: at}, true, nil
	}
	if !park {
		select {
		case d = <-w.out:
		default:
			d.at = at
		}
		return d, true, nil
	}
	select {
	case d = <-w.out:
		return d, true, d.err
	case <-w.again:
	case <-r.gone:
		done, err = true, &NotLeader{Shard: r.id}
	case <-timeout:
		done = true
	case <-r.b.draining:
		done = true
	case <-ctx.Done():
		done, err = true, ctx.Err()
	}
	if !r.claims.leave(w) {
		d = <-w.out // it was being delivered at this moment
		return d, true, d.err
	}
	d.at = at
	return d, done, err
}

// giveUp makes sure that a claim whose call failed is no longer served.
func (r *replica) giveUp(w *waiter, err error) error {
	if !r.claims.leave(w) {
		r.release((<-w.out).tasks)
	}
	return err
}

// Await waits until such a claim would get a task from the shard, or ctx ends. It claims nothing.
func (b *Broker) Await(ctx context.Context, shardID uint32, c ClaimCall) error {
	r, err := b.replica(shardID)
	if err != nil {
		return err
	}
	for {
		w := newWaiter(c)
		w.watch = true
		ready, _, err := changeOf(ctx, r, w.call.Namespace, func(round *engine.Round) (bool, error) {
			r.polls.note(w, round.Now())
			if engine.Runnable(round, &w.call) {
				return true, nil
			}
			r.claims.park(w)
			return false, nil
		})
		if ready {
			return nil
		}
		if err != nil {
			r.claims.leave(w) // the call may have run, or may still run
			return err
		}
		select {
		case <-w.out:
			return nil
		case <-w.again:
			continue
		case <-r.gone:
			err = &NotLeader{Shard: r.id}
		case <-ctx.Done():
			err = ctx.Err()
		}
		r.claims.leave(w)
		return err
	}
}

// waitingClaims holds the parked waiters of a shard. A caller that leaves takes its waiter with it, so a list without waiters costs nothing.
type waitingClaims struct {
	mu       sync.Mutex
	arrivals uint64
	queues   map[queueKey]map[string]*list.List // of *waiter in order of arrival, by the types that they take
}

type queueKey struct{ ns, name string }

// park adds a waiter, unless its caller has left.
func (c *waitingClaims) park(w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.state.Load() != stateWaiting {
		return
	}
	if c.queues == nil {
		c.queues = map[queueKey]map[string]*list.List{}
	}
	c.arrivals++
	w.arrival = c.arrivals
	for _, s := range w.call.Queues {
		q := queueKey{w.call.Namespace, s.Queue}
		if c.queues[q] == nil {
			c.queues[q] = map[string]*list.List{}
		}
		l := c.queues[q][w.types]
		if l == nil {
			l = list.New()
			c.queues[q][w.types] = l
		}
		w.places = append(w.places, l.PushBack(w))
	}
}

// leave ends a waiter whose caller gives up; false: it has been served.
func (c *waitingClaims) leave(w *waiter) bool {
	if !w.state.CompareAndSwap(stateWaiting, stateGone) {
		return false
	}
	c.remove(w)
	return true
}

// remove removes a waiter, if it is parked.
func (c *waitingClaims) remove(w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, place := range w.places {
		q := queueKey{w.call.Namespace, w.call.Queues[i].Queue}
		l := c.queues[q][w.types]
		if l.Remove(place); l.Len() > 0 {
			continue
		}
		if delete(c.queues[q], w.types); len(c.queues[q]) == 0 {
			delete(c.queues, q)
		}
	}
	w.places = nil
}

// first returns the waiter of a list that has waited longest, or nil if all are about to leave.
func first(l *list.List) *waiter {
	for e := l.Front(); e != nil; e = e.Next() {
		if w := e.Value.(*waiter); w.state.Load() == stateWaiting {
			return w
		}
	}
	return nil
}

// next returns the waiter for a queue that has waited longest and takes one of the types that may run.
func (c *waitingClaims) next(round *engine.Round, q queueKey) (best *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.queues[q] {
		if w := first(l); w != nil && (best == nil || w.arrival < best.arrival) && engine.Runnable(round, &w.call) {
			best = w
		}
	}
	return best
}

// waits reports whether a claim of the types waits for a queue.
func (c *waitingClaims) waits(q queueKey, types string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.queues[q][types]
	return l != nil && first(l) != nil
}

// some reports whether any claims wait.
func (c *waitingClaims) some() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queues) > 0
}

// retryAll tells all waiters to claim again: the leader's memory is gone.
func (c *waitingClaims) retryAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, lists := range c.queues {
		for _, l := range lists {
			for e := l.Front(); e != nil; e = e.Next() {
				w := e.Value.(*waiter)
				w.places = nil
				poke(w.again)
			}
		}
	}
	c.queues = nil
}

// retryWaiting tells all waiters to claim again, including those that the dropped round had served.
func (r *replica) retryWaiting() {
	for _, s := range r.served {
		poke(s.w.again)
	}
	r.served = nil
	r.claims.retryAll()
}

// serveWaiting hands the tasks that the round made ready to the claims waiting for them.
func (r *replica) serveWaiting(round *engine.Round) {
	if !r.claims.some() {
		return
	}
	for i := 0; i < len(round.Woken) || round.WakeBlocked(); i++ {
		q := queueKey{round.Woken[i].Namespace, round.Woken[i].Queue}
		for w := r.claims.next(round, q); w != nil; w = r.claims.next(round, q) {
			if w.watch {
				r.claims.remove(w)
				r.served = append(r.served, serving{w: w})
				continue
			}
			w.call.Entropy = rand.Uint64()
			r.serving = w
			got, _ := engine.ClaimTasks(round, &w.call)
			r.serving = nil
			if len(got) > 0 { // else it has met expired tasks only
				r.claims.remove(w)
				r.served = append(r.served, serving{w, got})
			}
		}
	}
}

// failServing fails the waiting claim with which a round's end has panicked, and drops the round. The panic goes on if there is none.
func (r *replica) failServing() {
	w := r.serving
	if w == nil {
		return
	}
	p := recover()
	var f *store.Failure
	if err, ok := p.(error); ok && errors.As(err, &f) {
		panic(p)
	}
	r.serving = nil
	r.log.Error("a waiting claim panicked", "panic", p, "stack", string(debug.Stack()))
	if w.state.CompareAndSwap(stateWaiting, stateServed) {
		r.claims.remove(w)
		w.out <- delivery{err: &shard.PanicError{Value: p}}
	}
	panic(shard.RunAgain{})
}

// deliver answers the claims of a committed round. Claims whose caller has gone are released.
func (r *replica) deliver(at shard.Stamp) {
	for _, s := range r.served {
		if s.w.state.CompareAndSwap(stateWaiting, stateServed) {
			s.w.out <- delivery{tasks: s.tasks, at: at}
		} else {
			r.release(s.tasks)
		}
	}
	clear(r.served)
	r.served = r.served[:0]
}

// release gives back claims that nobody received.
func (r *replica) release(tasks []Claimed) {
	if len(tasks) == 0 {
		return
	}
	r.b.background(func() {
		_, _, err := change(r.b.stopping, r, func(round *engine.Round) (struct{}, error) {
			for _, t := range tasks {
				// Refused only if the claim has ended in another way by now, or another caller got the same claim.
				_, _ = engine.GiveBack(round, Hold{Namespace: t.Namespace, ID: t.ID, Token: t.Token})
			}
			return struct{}{}, nil
		})
		if err != nil {
			r.log.Info("undelivered claims stay in place until their leases end", "tasks", len(tasks), "error", err)
		}
	})
}

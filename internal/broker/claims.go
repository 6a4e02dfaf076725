package broker

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/shard"
)

// Claims that find nothing wait in the leader's memory, in their order of arrival. The round that makes a task ready
// feeds them before it is sealed, and they are answered once it is committed.

// waiter is one claim that is to be answered.
type waiter struct {
	call    engine.ClaimRequest
	watch   bool // only wants to know that something is ready
	types   string
	arrival uint64
	parked  bool // owned by the shard's loop
	state   atomic.Int32
	out     chan delivery // one place
	again   chan struct{} // one place: the leader's memory is gone, ask again
}

// States of a waiter. Whoever moves it away from waiting owns what follows.
const (
	stateWaiting int32 = iota
	stateServed
	stateGone
)

type delivery struct {
	tasks []Claimed
	at    Stamp
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

// Claim takes tasks of one shard, waiting up to wait for the first. Nothing in time is an empty answer, no error.
//
// When ctx ends while claims are on their way they are released at once and use up no attempt, or returned as if it had
// not: a caller who can't use them settles them with GiveBack.
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

// claimOnce puts a claim into a round and waits for its answer; not done means that it has to be asked again.
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
		return delivery{again, at}, true, nil
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
		return d, true, nil
	case <-w.again:
	case <-r.gone:
		done, err = true, &Elsewhere{Shard: r.id}
	case <-timeout:
		done = true
	case <-r.b.draining:
		done = true
	case <-ctx.Done():
		done, err = true, ctx.Err()
	}
	if !w.state.CompareAndSwap(stateWaiting, stateGone) {
		return <-w.out, true, nil // it was being delivered at this moment
	}
	d.at = at
	return d, done, err
}

// giveUp makes sure that a claim whose call failed is not served any more.
func (r *replica) giveUp(w *waiter, err error) error {
	if !w.state.CompareAndSwap(stateWaiting, stateGone) {
		r.release((<-w.out).tasks)
	}
	return err
}

// Await waits until a claim of this form would get something from the shard, or ctx ends. It claims nothing.
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
		if ready || err != nil {
			return err
		}
		select {
		case <-w.out:
			return nil
		case <-w.again:
			continue
		case <-r.gone:
			err = &Elsewhere{Shard: r.id}
		case <-ctx.Done():
			err = ctx.Err()
		}
		w.state.CompareAndSwap(stateWaiting, stateGone)
		return err
	}
}

// waitingClaims are the parked waiters of a shard. It belongs to the shard's loop.
type waitingClaims struct {
	arrivals uint64
	queues   map[waitingQueue]map[string]*line // by the types that the waiters take
}

type waitingQueue struct{ ns, name string }

// line holds waiters in their order of arrival, among them some that have gone or were served elsewhere.
type line struct {
	waiters []*waiter
	pruned  int // length after the last pruning
}

func (c *waitingClaims) park(w *waiter) {
	if c.queues == nil {
		c.queues = map[waitingQueue]map[string]*line{}
	}
	c.arrivals++
	w.arrival, w.parked = c.arrivals, true
	for _, s := range w.call.Queues {
		q := waitingQueue{w.call.Namespace, s.Queue}
		if c.queues[q] == nil {
			c.queues[q] = map[string]*line{}
		}
		l := c.queues[q][w.types]
		if l == nil {
			l = &line{}
			c.queues[q][w.types] = l
		}
		l.add(w)
	}
}

func (l *line) add(w *waiter) {
	l.waiters = append(l.waiters, w)
	if len(l.waiters) > 2*l.pruned+64 {
		l.waiters = slices.DeleteFunc(l.waiters, func(w *waiter) bool { return !w.present() })
		l.pruned = len(l.waiters)
	}
}

func (w *waiter) present() bool { return w.parked && w.state.Load() == stateWaiting }

// first is the waiter of a line that has waited longest, nil if there is none.
func (l *line) first() *waiter {
	for len(l.waiters) > 0 {
		if w := l.waiters[0]; w.present() {
			return w
		}
		l.waiters[0] = nil
		l.waiters = l.waiters[1:]
	}
	return nil
}

// next is the waiter for a queue that has waited longest and takes one of the types that may run.
func (c *waitingClaims) next(round *engine.Round, q waitingQueue) *waiter {
	lines := c.queues[q]
	var best *waiter
	for types, l := range lines {
		w := l.first()
		if w == nil {
			delete(lines, types)
			continue
		}
		if (best == nil || w.arrival < best.arrival) && engine.Runnable(round, &w.call) {
			best = w
		}
	}
	if len(lines) == 0 {
		delete(c.queues, q)
	}
	return best
}

// again tells everyone to ask anew: the leader's memory is gone.
func (c *waitingClaims) again() {
	for _, lines := range c.queues {
		for _, l := range lines {
			for _, w := range l.waiters {
				if w.parked {
					w.parked = false
					poke(w.again)
				}
			}
		}
	}
	c.queues = nil
}

// askAgain tells everyone to ask anew, those too whom the round that is dropped had served.
func (r *replica) askAgain() {
	for _, s := range r.served {
		poke(s.w.again)
	}
	r.served = nil
	r.claims.again()
}

// feed gives what the round made ready to those who wait for it.
func (r *replica) feed(round *engine.Round) {
	if len(r.claims.queues) == 0 {
		return
	}
	for i := 0; i < len(round.Woken) || round.WakeBlocked(); i++ {
		q := waitingQueue{round.Woken[i].Namespace, round.Woken[i].Queue}
		for w := r.claims.next(round, q); w != nil; w = r.claims.next(round, q) {
			w.parked = false
			if w.watch {
				r.served = append(r.served, serving{w: w})
				continue
			}
			w.call.Entropy = rand.Uint64()
			got, _ := engine.ClaimTasks(round, &w.call)
			r.served = append(r.served, serving{w, got})
		}
	}
}

// deliver answers the claims of a committed round. Those whose caller has gone are released.
func (r *replica) deliver(at shard.Stamp) {
	for _, s := range r.served {
		if s.w.state.CompareAndSwap(stateWaiting, stateServed) {
			s.w.out <- delivery{s.tasks, at}
		} else {
			r.release(s.tasks)
		}
	}
	clear(r.served)
	r.served = r.served[:0]
}

// release gives claims back that nobody received.
func (r *replica) release(tasks []Claimed) {
	if len(tasks) == 0 {
		return
	}
	r.b.work.Go(func() {
		_, _, err := change(r.b.stopping, r, func(round *engine.Round) (struct{}, error) {
			for _, t := range tasks {
				// Refused only if the claim has ended in another way by now, or somebody else got the same claim.
				_, _ = engine.GiveBack(round, Hold{Namespace: t.Namespace, ID: t.ID, Token: t.Token})
			}
			return struct{}{}, nil
		})
		if err != nil {
			r.log.Info("claims that nobody received wait for the end of their leases", "tasks", len(tasks), "error", err)
		}
	})
}

// Package waiting is what waits at a shard's leader. Claims that found nothing wait in order of arrival, until a delivery or until their
// callers leave, and the package remembers who asked for tasks of which queue. Calls wait while a backup holds the shard. Messages to other
// shards wait in lanes, so that a destination that does not take them delays no other.
//
// It knows neither how a shard is reached, nor when a round's tasks may be delivered, nor what messages say.
package waiting

import (
	"container/list"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/shard"
)

// Claim is one claim waiting for its answer.
type Claim struct {
	Call    engine.ClaimRequest
	Watch   bool // waits only until a task is ready, and claims nothing
	types   string
	arrival uint64
	places  []*list.Element // in the lists of its queues, while it is parked; guarded by Claims.mu
	state   atomic.Int32
	out     chan Delivery // one place
	again   chan struct{} // one place
}

// States of a claim. Whoever moves it out of stateWaiting owns what follows.
const (
	stateWaiting int32 = iota
	stateServed
	stateGone
)

// Delivery is the answer to a claim.
type Delivery struct {
	Tasks []engine.Claimed
	At    shard.Stamp
	Err   error // the claim panicked
}

// New returns a claim that is not parked yet.
func New(c engine.ClaimRequest) *Claim {
	types := slices.Clone(c.Types)
	slices.Sort(types)
	return &Claim{Call: c, types: strings.Join(types, "\x00"), out: make(chan Delivery, 1), again: make(chan struct{}, 1)}
}

// Delivered returns the channel that the answer comes from.
func (w *Claim) Delivered() <-chan Delivery { return w.out }

// Again returns a channel that receives when the leader's memory is gone: its caller must claim again.
func (w *Claim) Again() <-chan struct{} { return w.again }

// Deliver answers the claim; false: its caller has gone.
func (w *Claim) Deliver(d Delivery) bool {
	if !w.state.CompareAndSwap(stateWaiting, stateServed) {
		return false
	}
	w.out <- d
	return true
}

// Retry tells the caller to claim again.
func (w *Claim) Retry() {
	select {
	case w.again <- struct{}{}:
	default:
	}
}

// Claims holds the parked claims of a shard. A caller that leaves takes its claim with it, so a list without claims costs nothing.
type Claims struct {
	mu       sync.Mutex
	arrivals uint64
	queues   map[queueKey]map[string]*list.List // of *Claim in order of arrival, by the types that they take
}

type queueKey struct{ ns, name string }

// Park adds a claim, unless its caller has left.
func (c *Claims) Park(w *Claim) {
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
	for _, s := range w.Call.Queues {
		q := queueKey{w.Call.Namespace, s.Queue}
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

// Leave ends a claim whose caller gives up; false: it has been served.
func (c *Claims) Leave(w *Claim) bool {
	if !w.state.CompareAndSwap(stateWaiting, stateGone) {
		return false
	}
	c.Remove(w)
	return true
}

// Remove removes a claim, if it is parked.
func (c *Claims) Remove(w *Claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, place := range w.places {
		q := queueKey{w.Call.Namespace, w.Call.Queues[i].Queue}
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

// first returns the claim of a list that has waited longest, or nil if all are about to leave.
func first(l *list.List) *Claim {
	for e := l.Front(); e != nil; e = e.Next() {
		if w := e.Value.(*Claim); w.state.Load() == stateWaiting {
			return w
		}
	}
	return nil
}

// Next returns the claim for a queue that has waited longest and takes one of the types that may run.
func (c *Claims) Next(round *engine.Round, ns, queue string) (best *Claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.queues[queueKey{ns, queue}] {
		if w := first(l); w != nil && (best == nil || w.arrival < best.arrival) && engine.Runnable(round, &w.Call) {
			best = w
		}
	}
	return best
}

// waits reports whether a claim of the types waits for a queue.
func (c *Claims) waits(q queueKey, types string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.queues[q][types]
	return l != nil && first(l) != nil
}

// Some reports whether any claims wait.
func (c *Claims) Some() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queues) > 0
}

// RetryAll tells all callers to claim again: the leader's memory is gone.
func (c *Claims) RetryAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, lists := range c.queues {
		for _, l := range lists {
			for e := l.Front(); e != nil; e = e.Next() {
				w := e.Value.(*Claim)
				w.places = nil
				w.Retry()
			}
		}
	}
	c.queues = nil
}

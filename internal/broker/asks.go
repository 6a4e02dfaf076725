package broker

import (
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// asks remembers who asked for tasks of which queue, so that explain knows who waits for some now, and who has asked through a node that
// has forgotten it since. All claims come to the leader of the shard, from whichever node, those that only watch too. It belongs to the
// shard's loop.
type asks struct {
	since  store.Time // all that was asked since then is known
	queues map[waitingQueue]*queueAsks
}

// queueAsks are what was asked of one queue, by the types that were asked for.
type queueAsks struct {
	since   store.Time
	last    store.Time
	byTypes map[string]*lastAsk
}

type lastAsk struct {
	at     store.Time
	worker string
	called store.Time // by a single call; 0: never
	caller string
}

// Bounds of what is remembered. Where there is more, what is old is forgotten first, then all: it is known from when on.
const (
	maxAskedQueues = 10_000
	maxAskedTypes  = 100 // sets of types of a queue
	askKept        = time.Hour
)

// note remembers that a claim or a watch asks.
func (a *asks) note(w *waiter, now store.Time) {
	for i := range w.call.Queues {
		name := waitingQueue{w.call.Namespace, w.call.Queues[i].Queue}
		q := a.queues[name]
		if q == nil {
			q = a.newQueue(name, now)
		}
		q.last = now
		ask := q.byTypes[w.types]
		if ask == nil {
			ask = q.newTypes(w.types, now)
		}
		ask.at = now
		if w.call.Worker != "" {
			ask.worker = w.call.Worker
		}
		if !w.call.Stream {
			ask.called, ask.caller = now, w.call.Worker
		}
	}
}

func (a *asks) newQueue(name waitingQueue, now store.Time) *queueAsks {
	if a.queues == nil {
		a.queues = map[waitingQueue]*queueAsks{}
	}
	if len(a.queues) >= maxAskedQueues {
		for name, q := range a.queues {
			if q.last < now.Add(-askKept) {
				delete(a.queues, name)
			}
		}
		if len(a.queues) >= maxAskedQueues {
			clear(a.queues)
			a.since = now
		}
	}
	q := &queueAsks{byTypes: map[string]*lastAsk{}}
	a.queues[name] = q
	return q
}

func (q *queueAsks) newTypes(types string, now store.Time) *lastAsk {
	if len(q.byTypes) >= maxAskedTypes {
		for types, ask := range q.byTypes {
			if ask.at < now.Add(-askKept) {
				delete(q.byTypes, types)
			}
		}
		if len(q.byTypes) >= maxAskedTypes {
			clear(q.byTypes)
			q.since = now
		}
	}
	ask := &lastAsk{}
	q.byTypes[types] = ask
	return ask
}

// begin is called when the replica becomes leader: before, others were asked.
func (a *asks) begin(now store.Time) {
	if now > a.since {
		*a = asks{since: now}
	}
}

// takers is what is known of the workers of a queue: what the nodes know, and what was asked here.
func (r *replica) takers(ns, queue string, workers task.QueueWorkers) engine.Takers {
	name := waitingQueue{ns, queue}
	t := engine.Takers{Since: r.asks.since, Workers: workers}
	select {
	case <-r.b.draining:
		t.Draining = true
	default:
	}
	q := r.asks.queues[name]
	if q == nil {
		return t
	}
	t.Since = max(t.Since, q.since)
	for types, ask := range q.byTypes {
		a := engine.Ask{Last: ask.at, Worker: ask.worker, Called: ask.called, Caller: ask.caller}
		if types != "" {
			a.Types = strings.Split(types, "\x00")
		}
		if l := r.claims.queues[name][types]; l != nil {
			a.Waiting = slices.ContainsFunc(l.waiters, (*waiter).present)
		}
		t.Asks = append(t.Asks, a)
	}
	slices.SortFunc(t.Asks, func(a, b engine.Ask) int { return slices.Compare(a.Types, b.Types) })
	return t
}

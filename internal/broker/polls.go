package broker

import (
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/engine/explain"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// polls remembers who asked for tasks of which queue. From it explain knows who is waiting now, and who has asked through a node that has
// since forgotten it. All claims reach the leader of the shard, through whichever node, including those that only watch. It is owned by the
// shard's loop.
type polls struct {
	since  store.Time // all polls since then are known
	queues map[queueKey]*queuePolls
}

// queuePolls holds the polls of one queue, by the types that they asked for.
type queuePolls struct {
	since   store.Time
	last    store.Time
	byTypes map[string]*lastPoll
}

type lastPoll struct {
	at     store.Time
	worker string
	called store.Time // by a single call, not a stream; 0: never
	caller string
}

// Bounds on what is remembered. At a bound, old polls are dropped first, then all of them; the since fields record from when on polls are known.
const (
	maxPolledQueues = 10_000
	maxPolledTypes  = 100 // sets of types of a queue
	pollKept        = time.Hour
)

// note records a claim or a watch.
func (a *polls) note(w *waiter, now store.Time) {
	for i := range w.call.Queues {
		name := queueKey{w.call.Namespace, w.call.Queues[i].Queue}
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

func (a *polls) newQueue(name queueKey, now store.Time) *queuePolls {
	if a.queues == nil {
		a.queues = map[queueKey]*queuePolls{}
	}
	if len(a.queues) >= maxPolledQueues {
		for name, q := range a.queues {
			if q.last < now.Add(-pollKept) {
				delete(a.queues, name)
			}
		}
		if len(a.queues) >= maxPolledQueues {
			clear(a.queues)
			a.since = now
		}
	}
	q := &queuePolls{byTypes: map[string]*lastPoll{}}
	a.queues[name] = q
	return q
}

func (q *queuePolls) newTypes(types string, now store.Time) *lastPoll {
	if len(q.byTypes) >= maxPolledTypes {
		for types, ask := range q.byTypes {
			if ask.at < now.Add(-pollKept) {
				delete(q.byTypes, types)
			}
		}
		if len(q.byTypes) >= maxPolledTypes {
			clear(q.byTypes)
			q.since = now
		}
	}
	ask := &lastPoll{}
	q.byTypes[types] = ask
	return ask
}

// begin is called when the replica becomes leader: earlier polls went to other nodes.
func (a *polls) begin(now store.Time) {
	if now > a.since {
		*a = polls{since: now}
	}
}

// workersOf combines what the nodes know about the workers of a queue with the polls seen here.
func (r *replica) workersOf(ns, queue string, workers task.QueueWorkers) explain.Workers {
	name := queueKey{ns, queue}
	t := explain.Workers{Since: r.polls.since, Workers: workers}
	select {
	case <-r.b.draining:
		t.Draining = true
	default:
	}
	q := r.polls.queues[name]
	if q == nil {
		return t
	}
	t.Since = max(t.Since, q.since)
	for types, ask := range q.byTypes {
		a := explain.Poll{Last: ask.at, Worker: ask.worker, Called: ask.called, Caller: ask.caller}
		if types != "" {
			a.Types = strings.Split(types, "\x00")
		}
		if l := r.claims.queues[name][types]; l != nil {
			a.Waiting = slices.ContainsFunc(l.waiters, (*waiter).present)
		}
		t.Polls = append(t.Polls, a)
	}
	slices.SortFunc(t.Polls, func(a, b explain.Poll) int { return slices.Compare(a.Types, b.Types) })
	return t
}

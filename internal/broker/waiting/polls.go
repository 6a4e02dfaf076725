package waiting

import (
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/engine/explain"
	"github.com/pawlq/pawl/internal/store"
)

// Polls remembers who asked for tasks of which queue. From it explain knows who is waiting now, and who has asked through a node that has
// since forgotten it. All claims reach the leader of the shard, through whichever node, including those that only watch. It is owned by the
// shard's loop.
type Polls struct {
	since  store.Time // all polls since then are known
	queues map[queueKey]*queuePolls
	bytes  int // of the types of all queues
}

// queuePolls holds the polls of one queue, by the types that they asked for.
type queuePolls struct {
	since   store.Time
	last    store.Time
	byTypes map[string]*lastPoll
	bytes   int // of the types
}

type lastPoll struct {
	at     store.Time
	worker string
	called store.Time // by a single call, not a stream; 0: never
	caller string
}

// Bounds on what is remembered. At a bound, old polls are dropped first, then all of them; the since fields record from
// when on polls are known.
const (
	maxPolledQueues = 10_000
	maxPolledTypes  = 100       // sets of types of a queue
	maxQueueBytes   = 256 << 10 // of the types of a queue: more than a claim may have
	maxPolledBytes  = 4 << 20   // of the types of all queues
	pollKept        = time.Hour
)

// Note records a claim or a watch.
func (a *Polls) Note(w *Claim, now store.Time) {
	for i := range w.Call.Queues {
		name := queueKey{w.Call.Namespace, w.Call.Queues[i].Queue}
		q := a.queues[name]
		if q == nil {
			q = a.newQueue(name, now)
		}
		q.last = now
		ask := q.byTypes[w.types]
		if ask == nil {
			ask = a.newTypes(name, w.types, now)
		}
		ask.at = now
		if w.Call.Worker != "" {
			ask.worker = w.Call.Worker
		}
		if !w.Call.Stream {
			ask.called, ask.caller = now, w.Call.Worker
		}
	}
}

func (a *Polls) newQueue(name queueKey, now store.Time) *queuePolls {
	if a.queues == nil {
		a.queues = map[queueKey]*queuePolls{}
	}
	if len(a.queues) >= maxPolledQueues {
		a.dropOld(now)
		if len(a.queues) >= maxPolledQueues {
			a.dropAll(now)
		}
	}
	q := &queuePolls{last: now, byTypes: map[string]*lastPoll{}}
	a.queues[name] = q
	return q
}

// dropOld drops the queues of which no task was asked for long.
func (a *Polls) dropOld(now store.Time) {
	for name, q := range a.queues {
		if q.last < now.Add(-pollKept) {
			delete(a.queues, name)
			a.bytes -= q.bytes
		}
	}
}

func (a *Polls) dropAll(now store.Time) {
	clear(a.queues)
	a.since, a.bytes = now, 0
}

// newTypes makes room for a poll of new types.
func (a *Polls) newTypes(name queueKey, types string, now store.Time) *lastPoll {
	q := a.queues[name]
	if full := func() bool { return len(q.byTypes) >= maxPolledTypes || q.bytes+len(types) > maxQueueBytes }; full() {
		a.dropTypes(q, func(ask *lastPoll) bool { return ask.at < now.Add(-pollKept) })
		if full() {
			a.dropTypes(q, func(*lastPoll) bool { return true })
			q.since = now
		}
	}
	if a.bytes+len(types) > maxPolledBytes {
		a.dropOld(now)
		if a.bytes+len(types) > maxPolledBytes {
			a.dropAll(now)
			q = a.newQueue(name, now)
		}
	}
	ask := &lastPoll{}
	q.byTypes[types] = ask
	q.bytes += len(types)
	a.bytes += len(types)
	return ask
}

// dropTypes drops some polls of a queue.
func (a *Polls) dropTypes(q *queuePolls, drop func(*lastPoll) bool) {
	for types, ask := range q.byTypes {
		if drop(ask) {
			delete(q.byTypes, types)
			q.bytes -= len(types)
			a.bytes -= len(types)
		}
	}
}

// Begin is called when the replica becomes leader: earlier polls went to other nodes.
func (a *Polls) Begin(now store.Time) {
	if now > a.since {
		*a = Polls{since: now}
	}
}

// Of returns the polls of a queue. Those of which a claim still waits say so.
func (a *Polls) Of(ns, queue string, claims *Claims) explain.Workers {
	name := queueKey{ns, queue}
	known := explain.Workers{Since: a.since}
	q := a.queues[name]
	if q == nil {
		return known
	}
	known.Since = max(known.Since, q.since)
	for types, ask := range q.byTypes {
		p := explain.Poll{Last: ask.at, Worker: ask.worker, Called: ask.called, Caller: ask.caller}
		if types != "" {
			p.Types = strings.Split(types, "\x00")
		}
		p.Waiting = claims.waits(name, types)
		known.Polls = append(known.Polls, p)
	}
	slices.SortFunc(known.Polls, func(a, b explain.Poll) int { return slices.Compare(a.Types, b.Types) })
	return known
}

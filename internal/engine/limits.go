package engine

import (
	"bytes"
	"maps"
	"slices"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Limits of a queue and of its keys are taken and given back with the claims themselves, in the entry that begins or ends one,
// however it ends. So they can't leak. What is stored: a row for each claimed task of a key, and a row for each bucket that is
// not full; both can be found again from the tasks, or end by themselves.

// hold is why tasks that are ready may not run.
type hold byte

const (
	heldByPause hold = 1 + iota
	heldByRunning
	heldByRate
)

// begin takes what a task's claim uses.
func (r *Round) begin(q *queue, id task.ID, x *Exec) {
	f := q.flowOf(x.Key, r.now)
	shared := q.lanes.shared()
	if shared {
		q.lanes.reckon(f, r.now)
		f.used += leastRun / f.weight
	}
	f.running++
	if x.Key != "" {
		if f.claimed == nil {
			f.claimed = map[task.ID]struct{}{}
		}
		f.claimed[id] = struct{}{}
		x.Claim.Counted = true
		r.tx.Set(claimedKey(q.ns, q.name, x.Key, id), nil)
		r.dropStale(q)
		r.takeTokens(q, x.Key, x)
	}
	r.takeTokens(q, "", x)
	if shared {
		q.lanes.reprice(f, r.now)
	}
	q.hold(f, r.now)
	if q.breakers != nil {
		r.letThrough(q, id, x.Type)
	}
}

// end gives back what a claim has used.
func (r *Round) end(q *queue, id task.ID, x *Exec) {
	f := q.flowOf(x.Key, r.now)
	if x.Key != "" {
		r.tx.Delete(claimedKey(q.ns, q.name, x.Key, id))
		if _, counted := f.claimed[id]; counted {
			delete(f.claimed, id)
		} else {
			q.lanes.forget(f)
			f = q.flowOf("", r.now) // as readFlows counts it
		}
	}
	if q.lanes.shared() {
		q.lanes.reckon(f, r.now)
	}
	f.running--
	was := f.held
	q.hold(f, r.now)
	q.lanes.forget(f)
	if most := q.config.Settings.MaxRunning; was != f.held || most > 0 && q.counts.claimed == int64(most)-1 {
		r.wake(q)
	}
}

// full says whether the queue runs as much as it may.
func (q *queue) full() bool {
	most := q.config.Settings.MaxRunning
	return most > 0 && q.counts.claimed >= int64(most)
}

// mayRun says whether anything of the queue may run.
func (q *queue) mayRun(now store.Time) bool {
	if q.config.Paused || q.full() {
		return false
	}
	if rate := q.config.Settings.Rate; rate.IsSet() && q.bucket != nil {
		q.bucket.fill(rate, now)
		return q.bucket.level >= enough
	}
	return true
}

// whyHeld is why no task of a flow may run.
func (q *queue) whyHeld(f *flow, now store.Time) hold {
	if f.key == "" {
		return 0
	}
	rules := q.config.Settings.RulesOf(f.key)
	if _, held := q.config.HeldKey(f.key); held {
		return heldByPause
	}
	if rules.MaxRunning > 0 && len(f.claimed) >= rules.MaxRunning {
		return heldByRunning
	}
	if rules.Rate.IsSet() && f.bucket != nil {
		if f.bucket.fill(rules.Rate, now); f.bucket.level < enough {
			return heldByRate
		}
	}
	return 0
}

// hold holds a flow back or lets it run, as the rules say now.
func (q *queue) hold(f *flow, now store.Time) { q.lanes.setHeld(f, q.whyHeld(f, now), now) }

// holdAll does that for all flows and types, after the rules changed.
func (q *queue) holdAll(now store.Time) {
	for _, f := range q.lanes.flows {
		q.rule(f)
		q.hold(f, now)
	}
	types := slices.Collect(maps.Keys(q.lanes.held))
	for _, h := range q.config.Holds {
		if h.Type != "" {
			types = append(types, h.Type)
		}
	}
	for _, typ := range types {
		q.holdType(typ, now)
	}
}

// holdType holds a type back, lets it run, or puts it on trial, as a pause of it and its breaker say.
func (q *queue) holdType(typ string, now store.Time) {
	_, paused := q.config.HeldType(typ)
	open, try := false, false
	if b := q.breakers.of(typ); b != nil {
		open, try = b.state != BreakerClosed, b.tries() && !paused
	}
	if !try {
		q.lanes.tryType(typ, false, now)
	}
	q.lanes.holdType(typ, paused || open, now)
	if try {
		q.lanes.tryType(typ, true, now)
	}
}

// heldTasks counts the ready tasks that may not run now.
func (q *queue) heldTasks(now store.Time) (n int64) {
	if !q.mayRun(now) {
		return q.counts.ready[0] + q.counts.ready[1] + q.counts.ready[2]
	}
	n = q.counts.parked
	if len(q.lanes.held) == 0 && len(q.lanes.flows) == 1 && q.lanes.flows[""] != nil {
		return n
	}
	for _, l := range q.lanes.byName {
		if l.flow.held != 0 || q.lanes.held[l.typ] {
			n += l.count
		}
	}
	for _, l := range q.lanes.trials {
		if l != nil {
			n-- // the probe
		}
	}
	return n
}

// wake lets waiting claims look at a queue again.
func (r *Round) wake(q *queue) { r.Woken = append(r.Woken, Woken{q.ns, q.name}) }

// readFlows finds which tasks of keys are claimed, and which buckets are not full. It comes before the lanes.
//
// A row whose task is not claimed any more was left by a leader of feature level 2, which did not know of these rows. It goes
// with the next claim: to find out writes nothing.
func (r *Round) readFlows(q *queue) {
	prefix := queueKey(q.ns, tabClaimed, q.name)
	var rows [][]byte
	r.tx.Scan(prefix, after(prefix), func(k, _ []byte) bool {
		rows = append(rows, bytes.Clone(k))
		return true
	})
	keyed := int64(0)
	for _, row := range rows {
		id := idAt(row)
		x, err := readExec(r.tx, q.ns, id)
		if err != nil || x.State != task.Claimed || x.Key == "" {
			q.stale = append(q.stale, row)
			continue
		}
		f := q.flowOf(x.Key, r.now)
		if f.claimed == nil {
			f.claimed = map[task.ID]struct{}{}
		}
		f.claimed[id] = struct{}{}
		f.running++
		keyed++
	}
	if rest := q.counts.claimed - keyed; rest > 0 {
		q.flowOf("", r.now).running = int(rest)
	}
	prefix = queueKey(q.ns, tabBucket, q.name)
	r.tx.Scan(prefix, after(prefix), func(k, v []byte) bool {
		b, err := decodeBucket(v)
		corrupt(err)
		key := string(k[len(prefix):])
		if key != "" {
			q.flowOf(key, r.now)
		}
		*q.bucketOf(key) = b
		return true
	})
}

func (r *Round) dropStale(q *queue) {
	for _, row := range q.stale {
		r.tx.Delete(row)
	}
	q.stale = nil
}

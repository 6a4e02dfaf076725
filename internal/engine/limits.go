package engine

import (
	"maps"
	"slices"

	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Limits of a queue and of its keys are taken and given back with the claims themselves, in the entry that begins or ends one,
// however it ends. So they can't leak. What is stored is what keys use at the moment (keys.go).

// hold is why tasks that are ready may not run.
type hold byte

const (
	heldByPause hold = 1 + iota
	heldByRunning
	heldByRate
	heldByOrder // a task of the key is claimed, in a queue with a strict order of keys
)

// begin takes what a task's claim uses.
func (r *Round) begin(q *Queue, id task.ID, x *schema.Exec) {
	f := q.flowOf(x.Key, r.now)
	shared := q.lanes.shared()
	if shared {
		q.lanes.reckon(f, r.now)
		f.used += leastRun / f.weight
	}
	f.running++
	if x.Key != "" {
		x.Claim.Counted = true
		r.dropStale(q)
		r.useKey(q, f, id, x)
	}
	if r.takeTokens(q, "", x) {
		r.writeUse(q, "")
	}
	if shared {
		q.lanes.reprice(f, r.now)
	}
	q.hold(f, r.now)
	if q.breakers != nil {
		q.breakers.LetThrough(breakerHost{r, q}, id, x.Type)
	}
}

// end gives back what a claim has used.
func (r *Round) end(q *Queue, id task.ID, x *schema.Exec) {
	f := q.flowOf(x.Key, r.now)
	if x.Key != "" {
		if !r.leaveKey(q, f, id) {
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
	r.settleFlow(q, f, nil)
	if most := q.config.Settings.MaxRunning; was != f.held || most > 0 && q.counts.Claimed == int64(most)-1 {
		r.wake(q)
	}
	r.roomIn(q.space)
}

// Full says whether the queue runs as much as it may.
func (q *Queue) Full() bool {
	most := q.config.Settings.MaxRunning
	return most > 0 && q.counts.Claimed >= int64(most)
}

// mayRun says whether anything of the queue may run.
func (q *Queue) mayRun(now store.Time) bool {
	if q.config.Paused || q.Full() || q.space.full() {
		return false
	}
	return q.hasToken("", now)
}

// whyHeld is why no task of a flow may run.
func (q *Queue) whyHeld(f *flow, now store.Time) hold {
	if f.key == "" {
		return 0
	}
	if _, held := q.config.HeldKey(f.key); held {
		return heldByPause
	}
	if most := q.config.Settings.RulesOf(f.key).MaxRunning; most > 0 && f.use.Count() >= most {
		return heldByRunning
	}
	if !q.hasToken(f.key, now) {
		return heldByRate
	}
	if q.ordered() && f.use.Count() > 0 {
		return heldByOrder
	}
	return 0
}

// hold holds a flow back or lets it run, as the rules say now.
func (q *Queue) hold(f *flow, now store.Time) { q.lanes.setHeld(f, q.whyHeld(f, now), now) }

// holdAll does that for all flows and types, after the rules changed.
func (r *Round) holdAll(q *Queue) {
	for _, f := range q.lanes.flows {
		q.rule(f)
		q.hold(f, r.now)
	}
	for _, h := range q.config.Holds {
		if c := q.lanes.cold.byKey[h.Key]; c != nil {
			q.thaw(c, r.now)
		}
	}
	types := slices.Collect(maps.Keys(q.lanes.held))
	for _, h := range q.config.Holds {
		if h.Type != "" {
			types = append(types, h.Type)
		}
	}
	for _, typ := range types {
		r.holdType(q, typ)
	}
}

// holdType holds a type back, lets it run, or puts it on trial, as a pause of it and its breaker say.
func (r *Round) holdType(q *Queue, typ string) {
	_, paused := q.config.HeldType(typ)
	open, try := false, false
	if b := q.breakers.Of(typ); b != nil {
		open, try = b.State != breaker.Closed, b.Tries() && !paused
	}
	if !try {
		q.lanes.tryType(typ, false, r.now)
	}
	q.lanes.holdType(typ, paused || open, r.now)
	if try {
		q.lanes.tryType(typ, true, r.now)
	}
	for p := range q.lanes.cold.released {
		r.takeReleased(q, p, tickLanes-r.lanesRead)
	}
	r.readLater(q)
}

// heldTasks counts the ready tasks that may not run now.
func (q *Queue) heldTasks(now store.Time) (n int64) {
	if !q.mayRun(now) {
		return q.counts.Ready[0] + q.counts.Ready[1] + q.counts.Ready[2]
	}
	n = q.counts.Parked
	if len(q.lanes.held) == 0 && len(q.lanes.flows) == 1 && q.lanes.flows[""] != nil {
		return n
	}
	for _, l := range q.lanes.byName {
		if l.flow.held != 0 || q.lanes.held[l.Type] {
			n += l.count
		}
	}
	for p := range q.lanes.cold.byType {
		for _, t := range q.lanes.cold.byType[p] {
			if t.held {
				n += t.tasks
			}
		}
		for _, t := range q.lanes.cold.released[p] {
			if q.lanes.held[t.typ] { // again
				n += t.tasks
			}
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
func (r *Round) wake(q *Queue) { r.Woken = append(r.Woken, Woken{q.ns, q.name}) }

package engine

import (
	"bytes"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

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

// bucket is a token bucket that is not full, or was not when it was last looked at.
type bucket struct {
	level float64    // tokens; below 0: a debt
	at    store.Time // when that was so
	due   store.Time // of the deadline when it has a token again; 0: it has one
}

// enough is how many tokens a task needs to start, but for what rounding may have lost.
const enough = 1 - 1e-6

// fill brings the level up to a time.
func (b *bucket) fill(r task.Rate, now store.Time) {
	come := float64(max(now-b.at, 0)) * perMicro(r)
	b.level, b.at = min(b.level+come, float64(r.Capacity())), max(now, b.at)
}

func perMicro(r task.Rate) float64 { return float64(r.Limit) / float64(r.Period/time.Microsecond) }

// reaches is when the bucket will have so many tokens.
func (b *bucket) reaches(level float64, r task.Rate) store.Time {
	return b.at + store.Time(math.Ceil(max(level-b.level, 0)/perMicro(r)))
}

func (b *bucket) encode() []byte {
	r := newRow(32)
	r.num(1, math.Float64bits(b.level))
	r.num(2, uint64(b.at))
	r.num(3, uint64(b.due))
	return r
}

func decodeBucket(row []byte) (*bucket, error) {
	b := &bucket{}
	err := decode(row, func(tag protowire.Number, v uint64) {
		switch tag {
		case 1:
			b.level = math.Float64frombits(v)
		case 2:
			b.at = store.Time(v)
		case 3:
			b.due = store.Time(v)
		}
	}, noBytes)
	if err == nil && (math.IsNaN(b.level) || math.IsInf(b.level, 0)) {
		err = fmt.Errorf("a bucket of %v tokens", b.level)
	}
	return b, err
}

// rateOf is the rule of a bucket: of a key, or of the queue for "".
func (q *queue) rateOf(key string) task.Rate {
	if key == "" {
		return q.config.Settings.Rate
	}
	return q.config.Settings.RulesOf(key).Rate
}

func (q *queue) bucketOf(key string) **bucket {
	if key == "" {
		return &q.bucket
	}
	return &q.lanes.flows[key].bucket
}

// begin takes what a task's claim uses.
func (r *Round) begin(q *queue, id task.ID, x *Exec) {
	f := q.flowOf(x.Key, r.now)
	alone := len(q.lanes.flows) == 1 // then there is nothing to share
	if !alone {
		q.lanes.reckon(f, r.now)
		f.used += leastRun / f.weight
	}
	f.running++
	if x.Key != "" {
		if f.claimed == nil {
			f.claimed = map[task.ID]struct{}{}
		}
		f.claimed[id] = struct{}{}
		r.tx.Set(claimedKey(q.ns, q.name, x.Key, id), nil)
		r.takeTokens(q, x.Key, x)
	}
	r.takeTokens(q, "", x)
	if !alone {
		q.lanes.reprice(f, r.now)
	}
	q.hold(f, r.now)
}

// end gives back what a claim has used.
func (r *Round) end(q *queue, id task.ID, x *Exec) {
	f := q.flowOf(x.Key, r.now)
	if len(q.lanes.flows) > 1 {
		q.lanes.reckon(f, r.now)
	}
	if f.running > 0 {
		f.running--
	}
	if x.Key != "" {
		delete(f.claimed, id)
		r.tx.Delete(claimedKey(q.ns, q.name, x.Key, id))
	}
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
	held := map[string]bool{}
	for _, h := range q.config.Holds {
		if h.Type != "" {
			held[h.Type] = true
		}
	}
	for typ := range q.lanes.held {
		if !held[typ] {
			q.lanes.holdType(typ, false, now)
		}
	}
	for typ := range held {
		q.lanes.holdType(typ, true, now)
	}
}

// heldTasks counts the ready tasks that may not run now.
func (q *queue) heldTasks(now store.Time) (n int64) {
	if !q.mayRun(now) {
		return q.counts.ready[0] + q.counts.ready[1] + q.counts.ready[2]
	}
	if len(q.lanes.held) == 0 && len(q.lanes.flows) == 1 && q.lanes.flows[""] != nil {
		return 0
	}
	for _, l := range q.lanes.byName {
		if l.flow.held != 0 || q.lanes.held[l.typ] {
			n += l.count
		}
	}
	return n
}

// takeTokens takes what a task costs from the bucket of its key, or of the queue for "".
func (r *Round) takeTokens(q *queue, key string, x *Exec) {
	rate := q.rateOf(key)
	if !rate.IsSet() {
		return
	}
	at := q.bucketOf(key)
	if *at == nil {
		*at = &bucket{level: float64(rate.Capacity()), at: r.now}
	}
	b := *at
	b.fill(rate, r.now)
	b.level -= float64(x.cost())
	r.watchBucket(q, key, b, rate)
}

// watchBucket stores a bucket, and if it is empty, sets the deadline at which it has a token again.
func (r *Round) watchBucket(q *queue, key string, b *bucket, rate task.Rate) {
	if b.level < enough && b.due == 0 {
		b.due = max(b.reaches(1, rate), r.now+1)
		r.remind(b.due, onTokens, q.ns, bucketRest(q.name, key))
	}
	r.tx.Set(bucketKey(q.ns, q.name, key), b.encode())
	r.sweepAt(q, r.now.Add(sweepRest))
}

// eachBucket calls fn for the buckets of a queue and its keys that are not full.
func (q *queue) eachBucket(fn func(key string, at **bucket)) {
	if q.bucket != nil {
		fn("", &q.bucket)
	}
	for key, f := range q.lanes.flows {
		if f.bucket != nil {
			fn(key, &f.bucket)
		}
	}
}

// settleBuckets brings the buckets up to now, before their rates change. Those that are full will be by the new rates, too.
func (r *Round) settleBuckets(q *queue) {
	q.eachBucket(func(key string, at **bucket) {
		if (*at).full(q.rateOf(key), r.now) {
			r.dropBucket(q, key, at)
		}
	})
}

// rewatch lets the buckets follow rates that have changed.
func (r *Round) rewatch(q *queue) {
	q.eachBucket(func(key string, at **bucket) {
		b, rate := *at, q.rateOf(key)
		if b.due != 0 {
			r.tx.Delete(deadlineKey(b.due, onTokens, q.ns, bucketRest(q.name, key)))
			b.due = 0
		}
		if rate.IsSet() {
			b.fill(rate, r.now)
			r.watchBucket(q, key, b, rate)
		} else {
			r.dropBucket(q, key, at)
		}
	})
}

func (r *Round) dropBucket(q *queue, key string, at **bucket) {
	*at = nil
	r.tx.Delete(bucketKey(q.ns, q.name, key))
	if key != "" {
		q.lanes.forget(q.lanes.flows[key])
	}
}

// tokensCame lets tasks run that waited for a token.
func (r *Round) tokensCame(d deadline) {
	name, key, ok := bytes.Cut(d.rest, []byte{0})
	if !ok {
		corrupt(errDeadline(d.rest))
	}
	q := r.queue(d.ns, string(name))
	if q == nil {
		return
	}
	f := q.lanes.flows[string(key)]
	if f == nil && len(key) > 0 {
		return
	}
	b := *q.bucketOf(string(key))
	if b == nil || b.due != d.at {
		return
	}
	b.due = 0
	rate := q.rateOf(string(key))
	b.fill(rate, r.now)
	r.watchBucket(q, string(key), b, rate)
	if len(key) > 0 {
		q.hold(f, r.now)
	}
	r.wake(q)
}

const (
	// sweepRest is how often full buckets are forgotten. A deadline for each would cost as much as the tokens do.
	sweepRest = time.Minute
	// sweepLimit bounds how many are forgotten in one round.
	sweepLimit = 1000
)

// sweepAt sets when the full buckets of a queue are forgotten, unless that is set.
func (r *Round) sweepAt(q *queue, at store.Time) {
	if q.counts.sweep == 0 {
		q.counts.sweep = at
		r.touch(q)
		r.remind(at, onSweep, q.ns, []byte(q.name))
	}
}

// sweep forgets full buckets: idle keys cost nothing.
func (r *Round) sweep(d deadline) {
	q := r.queue(d.ns, string(d.rest))
	if q == nil || q.counts.sweep != d.at {
		return
	}
	q.counts.sweep = 0
	r.touch(q)
	dropped, left := 0, false
	q.eachBucket(func(key string, at **bucket) {
		if dropped == sweepLimit || !(*at).full(q.rateOf(key), r.now) {
			left = true
			return
		}
		r.dropBucket(q, key, at)
		dropped++
	})
	switch {
	case dropped == sweepLimit:
		r.sweepAt(q, r.now+1)
	case left:
		r.sweepAt(q, r.now.Add(sweepRest))
	}
}

// full says whether a bucket need not be remembered.
func (b *bucket) full(r task.Rate, now store.Time) bool {
	b.fill(r, now)
	return b.due == 0 && b.level >= float64(r.Capacity())-1e-6
}

// wake lets waiting claims look at a queue again.
func (r *Round) wake(q *queue) { r.Woken = append(r.Woken, Woken{q.ns, q.name}) }

// cost is how many tokens the task takes.
func (x *Exec) cost() int { return max(x.Cost, 1) }

// readFlows finds which tasks of keys are claimed, and which buckets are not full. It comes before the lanes.
//
// A row whose task is not claimed any more was left by a leader of an earlier release, which did not know of these rows.
func (r *Round) readFlows(q *queue) {
	prefix := queueKey(q.ns, tabClaimed, q.name)
	var ids []task.ID
	r.tx.Scan(prefix, after(prefix), func(k, _ []byte) bool {
		ids = append(ids, idAt(k))
		return true
	})
	keyed := int64(0)
	for _, id := range ids {
		x, err := readExec(r.tx, q.ns, id)
		if err != nil || x.State != task.Claimed || x.Key == "" {
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

// dropBuckets removes the buckets of a queue that goes.
func (r *Round) dropBuckets(q *queue) {
	prefix := queueKey(q.ns, tabBucket, q.name)
	var keys [][]byte
	r.tx.Scan(prefix, after(prefix), func(k, v []byte) bool {
		b, err := decodeBucket(v)
		corrupt(err)
		keys = append(keys, bytes.Clone(k), deadlineKey(b.due, onTokens, q.ns, bucketRest(q.name, string(k[len(prefix):]))))
		return true
	})
	keys = append(keys, deadlineKey(q.counts.sweep, onSweep, q.ns, []byte(q.name)))
	for _, k := range keys {
		r.tx.Delete(k)
	}
}

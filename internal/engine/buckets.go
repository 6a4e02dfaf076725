package engine

import (
	"bytes"
	"math"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
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

// rateOf is the rule of a bucket: of a key, or of the queue for "".
func (q *Queue) rateOf(key string) task.Rate {
	if key == "" {
		return q.config.Settings.Rate
	}
	return q.config.Settings.RulesOf(key).Rate
}

// hasToken says whether a task of the key may start, or any of the queue for "", as far as its rate goes.
func (q *Queue) hasToken(key string, now store.Time) bool {
	b := q.buckets[key]
	if b == nil {
		return true
	}
	rate := q.rateOf(key)
	if !rate.IsSet() {
		return true
	}
	b.fill(rate, now)
	return b.level >= enough
}

// takeTokens takes what a task costs from the bucket of its key, or of the queue for "". If there is one, it is to be stored.
func (r *Round) takeTokens(q *Queue, key string, x *schema.Exec) bool {
	rate := q.rateOf(key)
	if !rate.IsSet() {
		return false
	}
	b := q.buckets[key]
	if b == nil {
		b = &bucket{level: float64(rate.Capacity()), at: r.now}
		q.buckets[key] = b
	}
	b.fill(rate, r.now)
	b.level -= float64(x.Tokens())
	r.watchBucket(q, key, b, rate)
	return true
}

// watchBucket sets the deadline at which an empty bucket has a token again, and the one at which full ones are forgotten. The
// bucket is to be stored.
func (r *Round) watchBucket(q *Queue, key string, b *bucket, rate task.Rate) {
	if b.level < enough && b.due == 0 {
		b.due = max(b.reaches(1, rate), r.now+1)
		r.SetDeadline(b.due, schema.OnTokens, q.ns, schema.BucketRest(q.name, key))
	}
	r.sweepAt(q, r.now.Add(sweepRest))
}

// followRates lets the buckets follow rates that change from those of one configuration to those of the next, which set puts in place.
func (r *Round) followRates(q *Queue, next *task.Settings, set func()) {
	keys := q.changedRates(next)
	for _, key := range keys {
		if q.buckets[key].full(q.rateOf(key), r.now) { // so it is by the new rate, too
			r.dropBucket(q, key)
		}
	}
	set()
	for _, key := range keys {
		if b := q.buckets[key]; b != nil {
			r.rewatch(q, key, b)
		}
	}
}

// changedRates are the buckets whose rates change with the settings. A queue may have a million, so it looks at all of them only if the
// rate of all keys changes.
func (q *Queue) changedRates(next *task.Settings) (keys []string) {
	was := &q.config.Settings
	add := func(key string) {
		if q.buckets[key] != nil {
			keys = append(keys, key)
		}
	}
	if was.Rate != next.Rate {
		add("")
	}
	if was.PerKey.Rate != next.PerKey.Rate {
		for key := range q.buckets {
			if key != "" && was.RulesOf(key).Rate != next.RulesOf(key).Rate {
				add(key)
			}
		}
		return keys
	}
	for key := range was.Keys {
		if was.RulesOf(key).Rate != next.RulesOf(key).Rate {
			add(key)
		}
	}
	for key := range next.Keys {
		if _, had := was.Keys[key]; !had && was.RulesOf(key).Rate != next.RulesOf(key).Rate {
			add(key)
		}
	}
	return keys
}

// rewatch lets a bucket follow a rate that has changed.
func (r *Round) rewatch(q *Queue, key string, b *bucket) {
	rate := q.rateOf(key)
	if b.due != 0 {
		r.tx.Delete(schema.DeadlineKey(b.due, schema.OnTokens, q.ns, schema.BucketRest(q.name, key)))
		b.due = 0
	}
	if rate.IsSet() {
		b.fill(rate, r.now)
		r.watchBucket(q, key, b, rate)
		r.writeUse(q, key)
	} else {
		r.dropBucket(q, key)
	}
}

func (r *Round) dropBucket(q *Queue, key string) {
	delete(q.buckets, key)
	r.writeUse(q, key)
}

// tokensCame lets tasks run that waited for a token.
func (r *Round) tokensCame(d schema.Deadline) {
	name, key, ok := bytes.Cut(d.Rest, []byte{0})
	if !ok {
		schema.Must(schema.ErrDeadline(d.Rest))
	}
	q := r.Queue(d.Namespace, string(name))
	if q == nil {
		return
	}
	b := q.buckets[string(key)]
	if b == nil || b.due != d.At {
		return
	}
	b.due = 0
	rate := q.rateOf(string(key))
	b.fill(rate, r.now)
	r.watchBucket(q, string(key), b, rate)
	r.writeUse(q, string(key))
	if f := q.lanes.flows[string(key)]; f != nil {
		q.hold(f, r.now)
		r.settleFlow(q, f, nil)
	}
	r.wake(q)
}

const (
	// sweepRest is how often full buckets and idle breakers are forgotten. A deadline for each would cost as much as the tokens do.
	sweepRest = time.Minute
	// sweepLimit bounds how many are forgotten in one round.
	sweepLimit = 1000
)

// sweepAt sets when the full buckets and idle breakers of a queue are forgotten, unless that is set.
func (r *Round) sweepAt(q *Queue, at store.Time) {
	if q.counts.Sweep == 0 {
		q.counts.Sweep = at
		r.touch(q)
		r.SetDeadline(at, schema.OnSweep, q.ns, []byte(q.name))
	}
}

// sweep forgets full buckets and breakers of which nothing was heard for a window: idle keys and types cost nothing.
func (r *Round) sweep(d schema.Deadline) {
	q := r.Queue(d.Namespace, string(d.Rest))
	if q == nil || q.counts.Sweep != d.At {
		return
	}
	q.counts.Sweep = 0
	r.touch(q)
	dropped, left := 0, false
	for key, b := range q.buckets {
		if dropped == sweepLimit {
			break
		}
		if !b.full(q.rateOf(key), r.now) {
			left = true
			continue
		}
		r.dropBucket(q, key)
		dropped++
	}
	if q.breakers != nil {
		for typ, b := range q.breakers.byType {
			switch {
			case b.state != BreakerClosed: // has a deadline of its own
			case dropped == sweepLimit || !b.seen.over(r.now, q.config.Settings.BreakerOf(typ).Window):
				left = true
			default:
				r.forgetBreaker(q, b)
				dropped++
			}
		}
	}
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

// dropBuckets removes the buckets of a queue that goes.
func (r *Round) dropBuckets(q *Queue) {
	prefix := schema.QueueKey(q.ns, schema.TableUse, q.name)
	var keys [][]byte
	r.tx.Scan(prefix, schema.After(prefix), func(k, v []byte) bool {
		u, err := decodeUse(v)
		schema.Must(err)
		keys = append(keys, bytes.Clone(k))
		if u.bucket != nil {
			keys = append(keys, schema.DeadlineKey(u.bucket.due, schema.OnTokens, q.ns, schema.BucketRest(q.name, string(k[len(prefix):]))))
		}
		return true
	})
	keys = append(keys, schema.DeadlineKey(q.counts.Sweep, schema.OnSweep, q.ns, []byte(q.name)))
	for _, k := range keys {
		r.tx.Delete(k)
	}
}

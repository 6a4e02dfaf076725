package engine

import (
	"bytes"
	"time"

	"github.com/pawlq/pawl/internal/engine/limit"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

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
	b.Fill(rate, now)
	return b.Level >= limit.Enough
}

// takeTokens takes what a task costs from the bucket of its key, or of the queue for "". If there is one, it is to be stored.
func (r *Round) takeTokens(q *Queue, key string, x *schema.Exec) bool {
	rate := q.rateOf(key)
	if !rate.IsSet() {
		return false
	}
	b := q.buckets[key]
	if b == nil {
		b = &limit.Bucket{Level: float64(rate.Capacity()), At: r.now}
		q.buckets[key] = b
	}
	b.Fill(rate, r.now)
	b.Level -= float64(x.Tokens())
	r.watchBucket(q, key, b, rate)
	return true
}

// watchBucket sets the deadline at which an empty bucket has a token again, and the one at which full ones are forgotten. The
// bucket is to be stored.
func (r *Round) watchBucket(q *Queue, key string, b *limit.Bucket, rate task.Rate) {
	if b.Level < limit.Enough && b.Due == 0 {
		b.Due = max(b.Reaches(1, rate), r.now+1)
		r.SetDeadline(b.Due, schema.OnTokens, q.ns, schema.BucketRest(q.name, key))
	}
	r.sweepAt(q, r.now.Add(sweepRest))
}

// followRates lets the buckets follow rates that change from those of one configuration to those of the next, which set puts in place.
func (r *Round) followRates(q *Queue, next *task.Settings, set func()) {
	keys := q.changedRates(next)
	for _, key := range keys {
		if q.buckets[key].Full(q.rateOf(key), r.now) { // so it is by the new rate, too
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
func (r *Round) rewatch(q *Queue, key string, b *limit.Bucket) {
	rate := q.rateOf(key)
	if b.Due != 0 {
		r.tx.Delete(schema.DeadlineKey(b.Due, schema.OnTokens, q.ns, schema.BucketRest(q.name, key)))
		b.Due = 0
	}
	if rate.IsSet() {
		b.Fill(rate, r.now)
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
	if b == nil || b.Due != d.At {
		return
	}
	b.Due = 0
	rate := q.rateOf(string(key))
	b.Fill(rate, r.now)
	r.watchBucket(q, string(key), b, rate)
	r.writeUse(q, string(key))
	q.lanes.Refresh(&r.lanes, string(key))
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
		if !b.Full(q.rateOf(key), r.now) {
			left = true
			continue
		}
		r.dropBucket(q, key)
		dropped++
	}
	if q.breakers != nil {
		n, some := q.breakers.Sweep(breakerHost{r, q}, sweepLimit-dropped)
		dropped, left = dropped+n, left || some
	}
	switch {
	case dropped == sweepLimit:
		r.sweepAt(q, r.now+1)
	case left:
		r.sweepAt(q, r.now.Add(sweepRest))
	}
}

// dropBuckets removes the buckets of a queue that goes.
func (r *Round) dropBuckets(q *Queue) {
	prefix := schema.QueueKey(q.ns, schema.TableUse, q.name)
	var keys [][]byte
	r.tx.Scan(prefix, schema.After(prefix), func(k, v []byte) bool {
		u, err := limit.DecodeUse(v)
		schema.Must(err)
		keys = append(keys, bytes.Clone(k))
		if u.Bucket != nil {
			keys = append(keys, schema.DeadlineKey(u.Bucket.Due, schema.OnTokens, q.ns, schema.BucketRest(q.name, string(k[len(prefix):]))))
		}
		return true
	})
	keys = append(keys, schema.DeadlineKey(q.counts.Sweep, schema.OnSweep, q.ns, []byte(q.name)))
	for _, k := range keys {
		r.tx.Delete(k)
	}
}

package limit

import (
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Set tracks what the keys of a queue use, and under "" what the queue as a whole does. Tokens and claims change in the
// log entry that begins or ends a claim, however it ends, so they can't leak.
type Set struct {
	ns, queue string
	settings  *task.Settings
	claims    Claimer
	buckets   map[string]*Bucket // missing: it is full, or has no rate
	stale     [][]byte           // rows that list tasks as claimed that are not
}

// Claimer returns the claimed tasks of a key.
type Claimer interface {
	Claims(key string) Claims
}

// Round is the part of engine.Round that a Set needs.
type Round interface {
	Tx() *store.Tx
	Now() store.Time
	SetDeadline(at store.Time, kind schema.DeadlineKind, ns string, rest []byte)
}

// NewSet returns the set of a queue that uses nothing. It reads settings through the pointer, so it sees later changes.
func NewSet(ns, queue string, settings *task.Settings, claims Claimer) Set {
	return Set{ns: ns, queue: queue, settings: settings, claims: claims, buckets: map[string]*Bucket{}}
}

// rateOf returns the rate of a bucket.
func rateOf(s *task.Settings, key string) task.Rate {
	if key == "" {
		return s.Rate
	}
	return s.RulesOf(key).Rate
}

// Stale returns rows that list tasks as claimed that are not.
func (s *Set) Stale() [][]byte { return s.stale }

// Buckets returns the buckets that are not full. They must not be changed.
func (s *Set) Buckets() map[string]*Bucket { return s.buckets }

// HasToken reports whether the rate limit of the key, or of the queue if key is "", lets a task start.
func (s *Set) HasToken(key string, now store.Time) bool {
	b := s.buckets[key]
	if b == nil {
		return true
	}
	rate := rateOf(s.settings, key)
	if !rate.IsSet() {
		return true
	}
	b.Fill(rate, now)
	return b.Level >= Enough
}

// NextToken reports whether the rate limit of a key, or of the queue if key is "", keeps tasks from running now, and until when.
func (s *Set) NextToken(key string, now store.Time) (until store.Time, empty bool) {
	return s.buckets[key].EmptyUntil(rateOf(s.settings, key), now)
}

// TakeOfQueue takes the cost of a task from the bucket of the queue, if it has one.
func (s *Set) TakeOfQueue(r Round, x *schema.Exec) (taken bool) {
	if taken = s.take(r, "", x); taken {
		s.write(r, "", Claims{})
	}
	return taken
}

// take takes the cost of a task from a bucket. If it returns true, the caller must store the bucket.
func (s *Set) take(r Round, key string, x *schema.Exec) bool {
	rate := rateOf(s.settings, key)
	if !rate.IsSet() {
		return false
	}
	b := s.buckets[key]
	if b == nil {
		b = &Bucket{Level: float64(rate.Capacity()), At: r.Now()}
		s.buckets[key] = b
	}
	b.Fill(rate, r.Now())
	b.Level -= float64(x.Tokens())
	s.watch(r, key, b, rate)
	return true
}

// watch sets the deadline at which an empty bucket has a token again. The caller must store the bucket, and sweep it when it is full.
func (s *Set) watch(r Round, key string, b *Bucket, rate task.Rate) {
	if b.Level < Enough && b.Due == 0 {
		b.Due = max(b.Reaches(1, rate), r.Now()+1)
		r.SetDeadline(b.Due, schema.OnTokens, s.ns, schema.BucketRest(s.queue, key))
	}
}

// TokenDue handles the deadline at which a bucket has a token again; false: the deadline is void.
func (s *Set) TokenDue(r Round, key string, at store.Time) bool {
	b := s.buckets[key]
	if b == nil || b.Due != at {
		return false
	}
	b.Due = 0
	rate := rateOf(s.settings, key)
	b.Fill(rate, r.Now())
	s.watch(r, key, b, rate)
	s.write(r, key, s.claims.Claims(key))
	return true
}

// Sweep forgets up to most full buckets, and reports whether buckets remain that are not full.
func (s *Set) Sweep(r Round, most int) (dropped int, left bool) {
	for key, b := range s.buckets {
		if dropped == most {
			break
		}
		if !b.Full(rateOf(s.settings, key), r.Now()) {
			left = true
			continue
		}
		s.drop(r, key)
		dropped++
	}
	return dropped, left
}

func (s *Set) drop(r Round, key string) {
	delete(s.buckets, key)
	s.write(r, key, s.claims.Claims(key))
}

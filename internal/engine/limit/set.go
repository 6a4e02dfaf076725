package limit

import (
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Set is what the keys of a queue use, and the queue as a whole for "". Tokens and claims are taken with the claims themselves, in the entry
// that begins or ends one, however it ends. So they can't leak.
type Set struct {
	ns, queue string
	settings  *task.Settings
	claims    Claimer
	buckets   map[string]*Bucket // none: it is full, or there is no rate
	stale     [][]byte           // rows of claimed tasks that are not
}

// Claimer knows which tasks of a key are claimed.
type Claimer interface {
	Claims(key string) Claims
}

// Round is the round that changes a set.
type Round interface {
	Tx() *store.Tx
	Now() store.Time
	SetDeadline(at store.Time, kind schema.DeadlineKind, ns string, rest []byte)
}

// NewSet is that of a queue that uses nothing. Settings are followed as they change.
func NewSet(ns, queue string, settings *task.Settings, claims Claimer) Set {
	return Set{ns: ns, queue: queue, settings: settings, claims: claims, buckets: map[string]*Bucket{}}
}

// rateOf is the rule of a bucket by the settings of a queue.
func rateOf(s *task.Settings, key string) task.Rate {
	if key == "" {
		return s.Rate
	}
	return s.RulesOf(key).Rate
}

// Stale are rows of claims whose tasks are not claimed any more.
func (s *Set) Stale() [][]byte { return s.stale }

// Buckets are those that are not full, to be read.
func (s *Set) Buckets() map[string]*Bucket { return s.buckets }

// HasToken says whether a task of the key may start, or any of the queue for "", as far as its rate goes.
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

// NextToken says whether the rate of a key, or for "" that of the queue, keeps tasks from running now, and until when.
func (s *Set) NextToken(key string, now store.Time) (until store.Time, empty bool) {
	return s.buckets[key].EmptyUntil(rateOf(s.settings, key), now)
}

// TakeOfQueue takes what a task costs from the bucket of the queue, if there is one.
func (s *Set) TakeOfQueue(r Round, x *schema.Exec) (taken bool) {
	if taken = s.take(r, "", x); taken {
		s.write(r, "", Claims{})
	}
	return taken
}

// take takes what a task costs from a bucket. If there is one, it is to be stored.
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

// watch sets the deadline at which an empty bucket has a token again. The bucket is to be stored, and swept when it is full.
func (s *Set) watch(r Round, key string, b *Bucket, rate task.Rate) {
	if b.Level < Enough && b.Due == 0 {
		b.Due = max(b.Reaches(1, rate), r.Now()+1)
		r.SetDeadline(b.Due, schema.OnTokens, s.ns, schema.BucketRest(s.queue, key))
	}
}

// TokensCame is for the deadline at which a bucket has a token again; false: there is none.
func (s *Set) TokensCame(r Round, key string, at store.Time) bool {
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

// Sweep forgets up to most full buckets, and says whether some are left that are not full.
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

package limit

import (
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Follow adapts the buckets to the rates of the next settings, which are about to replace the current ones. It reports
// whether there are buckets to sweep.
func (s *Set) Follow(r Round, next *task.Settings) (watched bool) {
	for _, key := range s.changedRates(next) {
		b := s.buckets[key]
		switch {
		case b.Full(rateOf(s.settings, key), r.Now()): // then it is full at the new rate, too
			s.drop(r, key)
		case s.rewatch(r, key, b, rateOf(next, key)):
			watched = true
		}
	}
	return watched
}

// changedRates returns the keys of the buckets whose rates change. A queue may have a million, so it looks at all of
// them only if the default rate of keys changes.
func (s *Set) changedRates(next *task.Settings) (keys []string) {
	was := s.settings
	add := func(key string) {
		if s.buckets[key] != nil {
			keys = append(keys, key)
		}
	}
	if was.Rate != next.Rate {
		add("")
	}
	if was.PerKey.Rate != next.PerKey.Rate {
		for key := range s.buckets {
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

// rewatch adapts a bucket to a changed rate; false: it no longer has one.
func (s *Set) rewatch(r Round, key string, b *Bucket, rate task.Rate) bool {
	if b.Due != 0 {
		r.Tx().Delete(schema.DeadlineKey(b.Due, schema.OnTokens, s.ns, schema.BucketRest(s.queue, key)))
		b.Due = 0
	}
	if !rate.IsSet() {
		s.drop(r, key)
		return false
	}
	b.Fill(rate, r.Now())
	s.watch(r, key, b, rate)
	s.write(r, key, s.claims.Claims(key))
	return true
}

package metrics

import (
	"maps"
	"sync"
)

// Sum adds up counters of parts that begin anew at 0 now and then, as those of a shard do with each leader. It never falls.
type Sum[Series, Part comparable] struct {
	mu    sync.Mutex
	added uint64 // how often counters were added
	all   map[Series]*counted[Part]
}

type counted[Part comparable] struct {
	sum   uint64
	added uint64 // Sum.added when this series was last added to
	last  map[Part]uint64
}

// Begin returns what to give to Of. Call it before the counters are read.
func (s *Sum[Series, Part]) Begin() (began uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.added
}

// Of returns the sum of a series over its current parts, and what former ones had counted. value returns the counter of
// a part, if it is known. Counters of which others were added since began are ignored: they may be older, and would
// pass for those of a part that began anew.
func (s *Sum[Series, Part]) Of(began uint64, series Series, parts []Part, value func(i int) (n uint64, known bool)) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[Series]*counted[Part]{}
	}
	of, now := s.all[series], map[Part]uint64{}
	if of == nil {
		of = &counted[Part]{}
		s.all[series] = of
	}
	if of.added > began {
		return of.sum
	}
	s.added++
	of.added = s.added
	for i, part := range parts {
		n, known := value(i)
		last, had := of.last[part]
		switch {
		case !known && had:
			n = last
		case !known:
			continue
		case n < last:
			last = 0
		}
		of.sum, now[part] = of.sum+n-last, n
	}
	of.last = now
	return of.sum
}

// Keep forgets all series but some.
func (s *Sum[Series, Part]) Keep(some func(Series) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.all, func(series Series, _ *counted[Part]) bool { return !some(series) })
}

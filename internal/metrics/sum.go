package metrics

import (
	"maps"
	"sync"
)

// Sum adds up counters of parts that begin anew at 0 now and then, as those of a shard do with each leader. It never falls.
type Sum[Series, Part comparable] struct {
	mu  sync.Mutex
	all map[Series]*counted[Part]
}

type counted[Part comparable] struct {
	sum  uint64
	last map[Part]uint64
}

// Of returns the sum of a series over its current parts, and what former ones had counted. value returns the counter of a part, if it is known.
func (s *Sum[Series, Part]) Of(series Series, parts []Part, value func(i int) (n uint64, known bool)) uint64 {
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

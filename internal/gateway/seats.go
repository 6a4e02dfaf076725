package gateway

import "sync"

// seats counts what runs at once, in all and of each namespace: one namespace has half of them at most, so that it can't take them from
// all others.
type seats struct {
	most int

	mu    sync.Mutex
	taken int
	of    map[string]int // of those that have any
}

func newSeats(most int) *seats { return &seats{most: most, of: map[string]int{}} }

// each is how many a namespace may have.
func (s *seats) each() int { return s.most / 2 }

// take takes one, if there is one; own says that the namespace has all that it may have.
func (s *seats) take(ns string) (ok, own bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own = s.of[ns] >= s.each()
	if own || s.taken >= s.most {
		return false, own
	}
	s.taken++
	s.of[ns]++
	return true, false
}

func (s *seats) give(ns string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	if s.of[ns]--; s.of[ns] == 0 {
		delete(s.of, ns)
	}
}

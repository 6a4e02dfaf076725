// Package seats counts what runs at once, and the memory that it takes, in all and of each namespace: one has half at most, so that it
// can't take all from the others. It knows nothing of what runs, and refuses nothing by itself.
package seats

import "sync"

// Seats are the places for one kind of thing. Their methods may be called from any goroutine.
type Seats struct {
	most int

	mu    sync.Mutex
	taken int
	of    map[string]int // of the namespaces that have any
}

// New has places for so many.
func New(most int) *Seats { return &Seats{most: most, of: map[string]int{}} }

// Most is how many there are.
func (s *Seats) Most() int { return s.most }

// Each is how many a namespace may have.
func (s *Seats) Each() int { return s.most / 2 }

// Take takes one, if there is one, until Give. Own says that there is none since the namespace has all that it may have.
func (s *Seats) Take(ns string) (ok, own bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own = s.of[ns] >= s.Each()
	if own || s.taken >= s.most {
		return false, own
	}
	s.taken++
	s.of[ns]++
	return true, false
}

// Give gives back one that the namespace took.
func (s *Seats) Give(ns string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	if s.of[ns]--; s.of[ns] == 0 {
		delete(s.of, ns)
	}
}

// Taken is how many are taken.
func (s *Seats) Taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

package admission

import "sync"

// Slots bound how many of one kind run at once. Their methods may be called from any goroutine.
type Slots struct {
	most int

	mu    sync.Mutex
	taken int
	of    map[string]int // of the namespaces that have any
}

// NewSlots makes so many.
func NewSlots(most int) *Slots { return &Slots{most: most, of: map[string]int{}} }

// Size is how many there are.
func (s *Slots) Size() int { return s.most }

// PerNamespace is how many a namespace may have.
func (s *Slots) PerNamespace() int { return s.most / 2 }

// TryAcquire takes one, if one is free, until Release. Own says that there is none since the namespace has all that it may have.
func (s *Slots) TryAcquire(ns string) (ok, own bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own = s.of[ns] >= s.PerNamespace()
	if own || s.taken >= s.most {
		return false, own
	}
	s.taken++
	s.of[ns]++
	return true, false
}

// Release gives back one that the namespace took.
func (s *Slots) Release(ns string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	if s.of[ns]--; s.of[ns] == 0 {
		delete(s.of, ns)
	}
}

// InUse is how many are taken.
func (s *Slots) InUse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

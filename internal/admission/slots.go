package admission

import "sync"

// Slots limits how many of one kind run at once. Its methods may be called from any goroutine.
type Slots struct {
	most int

	mu    sync.Mutex
	taken int
	of    map[string]int // of the namespaces that hold any
}

// NewSlots returns the given number of slots.
func NewSlots(most int) *Slots { return &Slots{most: most, of: map[string]int{}} }

// Size returns the number of slots.
func (s *Slots) Size() int { return s.most }

// PerNamespace returns how many a namespace may hold.
func (s *Slots) PerNamespace() int { return s.most / 2 }

// TryAcquire takes a slot, until Release, if one is free. If not, own reports whether that is because the namespace already holds
// all it may.
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

// Release gives back a slot that the namespace took.
func (s *Slots) Release(ns string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	if s.of[ns]--; s.of[ns] == 0 {
		delete(s.of, ns)
	}
}

// InUse returns how many are taken.
func (s *Slots) InUse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

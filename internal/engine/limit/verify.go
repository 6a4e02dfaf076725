package limit

import (
	"fmt"

	"github.com/pawlq/pawl/internal/store"
)

// Verify checks that memory agrees with the rows, and that each blocked queue is marked as blocked. Tests call it after every round.
func (s *Space) Verify(from store.Reader, waiterOf func(queue string) *Waiter) error {
	got, want := s.Info(), OpenSpace(from, s.ns).Info()
	want.Refused = got.Refused
	if got != want {
		return fmt.Errorf("namespace %q: memory has %+v, rows %+v", s.ns, got, want)
	}
	for _, w := range s.blocked {
		if !w.blocked || waiterOf(w.Queue) != w {
			return fmt.Errorf("queue %q waits for room in its namespace, but is not marked so", w.Queue)
		}
	}
	return nil
}

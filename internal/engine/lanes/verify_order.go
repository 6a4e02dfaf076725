package lanes

import (
	"fmt"
	"slices"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Verify checks that memory agrees with the rows. Tests call it after every round.
func (m *Orders) Verify(from store.Reader) error {
	n := 0
	for s := range m.sets {
		n += len(s.lines)
		for key, l := range s.lines {
			first, _ := schema.ReadFirst(from, s.ns, s.queue, key)
			var next []place
			schema.ScanOrder(from, s.ns, s.queue, key, 0, func(order uint64, id task.ID) bool {
				next = append(next, place{order, id})
				return true
			})
			if l.first != first || len(l.next) > len(next) || l.whole && len(l.next) != len(next) ||
				!slices.Equal(l.next, next[:len(l.next)]) {
				return fmt.Errorf("key %q of queue %q: memory has the line %+v, the rows %+v and %v", key, s.queue, l, first, next)
			}
		}
	}
	if n != m.lines {
		return fmt.Errorf("%d lines of keys are in memory, %d are counted", n, m.lines)
	}
	return nil
}

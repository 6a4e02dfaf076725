package store

import (
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// newScheduler makes what decides when one Pebble store may compact: as Pebble's own scheduler does, with two differences.
//
// Pebble's looks ten times a second, for as long as the store is open, whether more may run. This one looks when a flush or a compaction has
// ended, which are the moments at which that changes, so an idle store sleeps.
//
// Pebble's lets compactions begin while the store is still being opened. Where the opening then fails, for want of room, they go on with what
// has been closed, and panic. This one grants none before begin is called.
//
// It serves one opening of a store: once Pebble has closed that, it grants nothing.
func newScheduler() *scheduler {
	return &scheduler{ConcurrencyLimitScheduler: pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest()}
}

type scheduler struct {
	*pebble.ConcurrencyLimitScheduler
	begun atomic.Bool
}

// begin lets compactions run: the store is open.
func (s *scheduler) begin() {
	s.begun.Store(true)
	s.UpdateGetAllowedWithoutPermission()
}

// TrySchedule implements pebble.CompactionScheduler. A compaction that is refused is known to wait.
func (s *scheduler) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	if !s.begun.Load() {
		return false, nil
	}
	return s.ConcurrencyLimitScheduler.TrySchedule()
}

// UpdateGetAllowedWithoutPermission implements pebble.CompactionScheduler. It is called with Pebble's locks held. A compaction that ends lets
// those that wait begin, so one that is granted and ends at once does just that; what was closed meanwhile grants nothing.
func (s *scheduler) UpdateGetAllowedWithoutPermission() {
	go func() {
		if granted, compaction := s.TrySchedule(); granted {
			compaction.Done()
		}
	}()
}

package store

import (
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// newScheduler returns the scheduler of one Pebble store's compactions. It works like Pebble's own, with two differences.
//
// Pebble's checks ten times a second, for as long as the store is open, whether more compactions may run. This one checks when a flush or a
// compaction has ended, since only then does the answer change, so an idle store sleeps.
//
// Pebble's lets compactions start while the store is still being opened. If opening then fails for lack of space, they continue on closed
// files, and panic. This one grants none before begin is called.
//
// It serves one opening of a store: after Pebble has closed it, it grants nothing.
func newScheduler() *scheduler {
	return &scheduler{ConcurrencyLimitScheduler: pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest()}
}

type scheduler struct {
	*pebble.ConcurrencyLimitScheduler
	begun atomic.Bool
}

// begin allows compactions to run: the store is open.
func (s *scheduler) begin() {
	s.begun.Store(true)
	s.UpdateGetAllowedWithoutPermission()
}

// TrySchedule implements pebble.CompactionScheduler. Pebble keeps a refused compaction waiting.
func (s *scheduler) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	if !s.begun.Load() {
		return false, nil
	}
	return s.ConcurrencyLimitScheduler.TrySchedule()
}

// UpdateGetAllowedWithoutPermission implements pebble.CompactionScheduler. It is called with Pebble's locks held. When a compaction ends,
// waiting ones start. So a grant that ends immediately has the same effect; a scheduler closed meanwhile grants nothing.
func (s *scheduler) UpdateGetAllowedWithoutPermission() {
	go func() {
		if granted, compaction := s.TrySchedule(); granted {
			compaction.Done()
		}
	}()
}

package store

import "github.com/cockroachdb/pebble/v2"

// newScheduler makes what decides when one Pebble store may compact: as Pebble's own scheduler does, but for that one looks ten times a
// second, for as long as the store is open, whether more may run. This one looks when a flush or a compaction has ended, which are the moments
// at which that changes, so an idle store sleeps. It serves one opening of a store: once Pebble has closed that, it grants nothing.
func newScheduler() pebble.CompactionScheduler {
	return scheduler{pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest()}
}

type scheduler struct {
	*pebble.ConcurrencyLimitScheduler
}

// UpdateGetAllowedWithoutPermission implements pebble.CompactionScheduler. It is called with Pebble's locks held. A compaction that ends lets
// those that wait begin, so one that is granted and ends at once does just that; what was closed meanwhile grants nothing.
func (s scheduler) UpdateGetAllowedWithoutPermission() {
	go func() {
		if granted, compaction := s.TrySchedule(); granted {
			compaction.Done()
		}
	}()
}

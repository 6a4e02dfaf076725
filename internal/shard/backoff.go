package shard

import "time"

// backoff is how often in a row something failed with a replica, and until when it is not tried again, by Config.Time.Elapsed.
type backoff struct {
	failures int
	until    time.Duration
}

// backOff records a failure with a replica at now, and returns for how long it is not tried again: first, doubled with each further
// failure, up to limit.
func backOff(all map[uint64]backoff, id uint64, now, first, limit time.Duration) (pause time.Duration) {
	failures := all[id].failures
	pause = min(first<<min(failures, 10), limit)
	all[id] = backoff{failures + 1, now + pause}
	return pause
}

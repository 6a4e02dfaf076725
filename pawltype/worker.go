package pawltype

import "time"

// WorkerStats are a worker's current state and its counters since Run began.
type WorkerStats struct {
	Connected   bool
	Quiet       bool      // an operator has told it to take no new tasks
	LastContact time.Time // the last frame from the broker; zero: none yet
	Reconnects  int       // streams after the first
	Running     int       // handlers
	Unsettled   int       // tasks whose handlers have returned, but whose outcomes the broker has not confirmed
	Succeeded   int64     // handlers that returned nil
	Failed      int64     // handlers that failed, or steered other than by Snooze; not those that were cancelled or lost their leases
	LeasesLost  int64
}

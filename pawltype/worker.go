package pawltype

import "time"

// WorkerStats is what a worker does right now, and did since Run began.
type WorkerStats struct {
	Connected   bool
	Quiet       bool      // an operator has it take no new tasks
	LastContact time.Time // the last word from the broker; zero: none yet
	Reconnects  int       // streams after the first
	Running     int       // handlers
	Unsettled   int       // tasks that have ended, whose end the broker has not confirmed
	Succeeded   int64     // handlers that returned nil
	Failed      int64     // handlers that failed, or steered otherwise than by Snooze; not those that were cancelled, or lost their leases
	LeasesLost  int64
}

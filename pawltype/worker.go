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

// Queues are the queues from which a worker takes tasks, and how it chooses between them: Weighted or Strict.
type Queues interface{ queues() }

// Weighted takes from the queues that have tasks in exact proportion to their weights, 1 to 1,000 each:
// Weighted{"mail": 7, "default": 3}.
type Weighted map[string]int

// Strict takes from the first queue that has a task: Strict{"urgent", "default"}.
type Strict []string

func (Weighted) queues() {}
func (Strict) queues()   {}

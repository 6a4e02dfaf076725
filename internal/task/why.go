package task

import "slices"

// Why is the code of a reason in an explanation. The codes are part of the public contract.
type Why string

const (
	WhyNoLeader Why = "no_leader" // nobody decides for its shard
	WhyRunning  Why = "running"   // a worker holds it
	WhyEnded    Why = "ended"     //
	// a task that follows it, or the task itself as it was moved, has not reached its queue yet
	WhyOnItsWay Why = "on_its_way"
	WhyNotDue   Why = "not_due" // delayed, postponed, or failed and waiting for a retry
	WhyUnique   Why = "unique"  // a running task holds its unique key
	// an earlier task with the same key has not ended, in a queue with a strict order of keys
	WhyKeyOrder            Why = "key_order"
	WhyQueuePaused         Why = "queue_paused"          // by an operator
	WhyTypePaused          Why = "type_paused"           //
	WhyBreakerOpen         Why = "breaker_open"          // too many attempts of its type failed
	WhyKeyPaused           Why = "key_paused"            // by an operator
	WhyQueueMaxRunning     Why = "queue_max_running"     // its queue runs as many tasks as it may
	WhyNamespaceMaxRunning Why = "namespace_max_running" // all queues of its namespace together run as many tasks as they may
	WhyQueueRate           Why = "queue_rate"            // its queue has started as many tasks in a period as it may
	WhyKeyMaxRunning       Why = "key_max_running"       // its key runs as many tasks as it may
	WhyKeyRate             Why = "key_rate"              //
	WhyDraining            Why = "draining"              // the node that leads its shard is about to stop
	WhyNoWorker            Why = "no_worker"             // nobody takes tasks of its queue
	WhyNoWorkerForType     Why = "no_worker_for_type"    //
	// whether a worker takes it: a node does not answer, or a worker that holds other tasks of its queue may be gone
	WhyWorkersUnknown Why = "workers_unknown"
	WhyHigherPriority Why = "higher_priority" // others go first
	WhyOtherKeys      Why = "other_keys"      // it is their turn
	WhyOlderTasks     Why = "older_tasks"     // of its key and priority
	WhyWorkersBusy    Why = "workers_busy"    // the workers that take it have no free slot, or take tasks of other queues first
	WhyNext           Why = "next"            // nothing: the next claim gets it
)

// Whys lists all codes in order of precedence.
var Whys = []Why{WhyNoLeader, WhyRunning, WhyEnded, WhyOnItsWay, WhyNotDue, WhyUnique, WhyKeyOrder, WhyQueuePaused, WhyTypePaused,
	WhyBreakerOpen, WhyKeyPaused, WhyQueueMaxRunning, WhyNamespaceMaxRunning, WhyQueueRate, WhyKeyMaxRunning, WhyKeyRate, WhyDraining,
	WhyNoWorker, WhyNoWorkerForType, WhyWorkersUnknown, WhyHigherPriority, WhyOtherKeys, WhyOlderTasks, WhyWorkersBusy, WhyNext}

// Order returns the position of a code in Whys.
func (w Why) Order() int { return slices.Index(Whys, w) }

// Holds reports whether the reason is a pause, a breaker, a limit, or a task that must end first: no worker can run the task then.
func (w Why) Holds() bool {
	switch w {
	case WhyUnique, WhyKeyOrder, WhyQueuePaused, WhyTypePaused, WhyBreakerOpen, WhyKeyPaused, WhyQueueMaxRunning, WhyNamespaceMaxRunning,
		WhyQueueRate, WhyKeyMaxRunning, WhyKeyRate:
		return true
	}
	return false
}

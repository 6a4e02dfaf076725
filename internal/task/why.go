package task

import "slices"

// Why is the code of a reason that explain gives. The codes are part of the public contract.
type Why string

const (
	WhyNoLeader            Why = "no_leader"             // nobody decides for its shard
	WhyRunning             Why = "running"               // a worker holds it
	WhyEnded               Why = "ended"                 //
	WhyOnItsWay            Why = "on_its_way"            // what follows it, or itself as it was moved, has not come to its queue yet
	WhyNotDue              Why = "not_due"               // delayed, put off, or failed and to be tried again
	WhyUnique              Why = "unique"                // a task that runs holds its unique key
	WhyKeyOrder            Why = "key_order"             // a task before it with the same key has not ended, in a queue with a strict order of keys
	WhyQueuePaused         Why = "queue_paused"          // by an operator
	WhyTypePaused          Why = "type_paused"           //
	WhyBreakerOpen         Why = "breaker_open"          // too many attempts of its type failed
	WhyKeyPaused           Why = "key_paused"            // by an operator
	WhyQueueMaxRunning     Why = "queue_max_running"     // its queue runs as many tasks as it may
	WhyNamespaceMaxRunning Why = "namespace_max_running" // all queues of its namespace together run as many as they may
	WhyQueueRate           Why = "queue_rate"            // its queue has started as many in a time as it may
	WhyKeyMaxRunning       Why = "key_max_running"       // so does its key
	WhyKeyRate             Why = "key_rate"              //
	WhyDraining            Why = "draining"              // the node that leads its shard is about to stop
	WhyNoWorker            Why = "no_worker"             // nobody takes tasks of its queue
	WhyNoWorkerForType     Why = "no_worker_for_type"    //
	WhyWorkersUnknown      Why = "workers_unknown"       // whether a worker takes it: some node gives no answer, or who holds others of its queue may be gone
	WhyHigherPriority      Why = "higher_priority"       // others go first
	WhyOtherKeys           Why = "other_keys"            // it is their turn
	WhyOlderTasks          Why = "older_tasks"           // of its key and priority
	WhyWorkersBusy         Why = "workers_busy"          // who takes it has no free slot, or takes tasks of other queues first
	WhyNext                Why = "next"                  // nothing: the next claim gets it
)

// Whys lists all codes, the one that decides first is the first.
var Whys = []Why{WhyNoLeader, WhyRunning, WhyEnded, WhyOnItsWay, WhyNotDue, WhyUnique, WhyKeyOrder, WhyQueuePaused, WhyTypePaused, WhyBreakerOpen, WhyKeyPaused, WhyQueueMaxRunning,
	WhyNamespaceMaxRunning, WhyQueueRate, WhyKeyMaxRunning, WhyKeyRate, WhyDraining, WhyNoWorker, WhyNoWorkerForType, WhyWorkersUnknown, WhyHigherPriority, WhyOtherKeys, WhyOlderTasks, WhyWorkersBusy, WhyNext}

// Order is the place of a code among Whys.
func (w Why) Order() int { return slices.Index(Whys, w) }

// Holds says whether the reason is a pause, a breaker, a limit, or a task that has to end first: the task may not run, whoever asks for it.
func (w Why) Holds() bool {
	switch w {
	case WhyUnique, WhyKeyOrder, WhyQueuePaused, WhyTypePaused, WhyBreakerOpen, WhyKeyPaused, WhyQueueMaxRunning, WhyNamespaceMaxRunning, WhyQueueRate, WhyKeyMaxRunning, WhyKeyRate:
		return true
	}
	return false
}

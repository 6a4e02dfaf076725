package admin

import (
	"context"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// ReasonCode is the code of a Reason. Newer brokers may add codes.
type ReasonCode string

// The codes, in the order in which they are checked.
const (
	ReasonNoLeader ReasonCode = "no_leader" // the task's shard has no leader
	ReasonRunning  ReasonCode = "running"
	ReasonEnded    ReasonCode = "ended"
	// its follow-up task, or the task itself after a move, has not arrived in its queue yet
	ReasonOnItsWay            ReasonCode = "on_its_way"
	ReasonNotDue              ReasonCode = "not_due"   // delayed, snoozed, or waiting for a retry
	ReasonUnique              ReasonCode = "unique"    // the task that holds its unique key is running
	ReasonKeyOrder            ReasonCode = "key_order" // in a queue with strict key order: an earlier task of its key has not ended
	ReasonQueuePaused         ReasonCode = "queue_paused"
	ReasonTypePaused          ReasonCode = "type_paused"
	ReasonBreakerOpen         ReasonCode = "breaker_open" // too many attempts of its type failed
	ReasonKeyPaused           ReasonCode = "key_paused"
	ReasonQueueMaxRunning     ReasonCode = "queue_max_running"     // its queue runs as many tasks as it may
	ReasonNamespaceMaxRunning ReasonCode = "namespace_max_running" // the queues of its namespace together run as many tasks as they may
	ReasonQueueRate           ReasonCode = "queue_rate"            // its queue has no rate-limit token left
	ReasonKeyMaxRunning       ReasonCode = "key_max_running"
	ReasonKeyRate             ReasonCode = "key_rate"
	ReasonDraining            ReasonCode = "draining"  // the leader of its shard is shutting down
	ReasonNoWorker            ReasonCode = "no_worker" // no worker takes tasks of its queue
	ReasonNoWorkerForType     ReasonCode = "no_worker_for_type"
	// a node did not answer, or the workers that hold tasks of its queue may be gone
	ReasonWorkersUnknown ReasonCode = "workers_unknown"
	ReasonHigherPriority ReasonCode = "higher_priority" // tasks of a higher priority go first
	ReasonOtherKeys      ReasonCode = "other_keys"      // it is the turn of other keys
	ReasonOlderTasks     ReasonCode = "older_tasks"     // earlier tasks of its key and priority go first
	// no worker that takes it has a free slot, or all take tasks of other queues first
	ReasonWorkersBusy ReasonCode = "workers_busy"
	ReasonNext        ReasonCode = "next" // nothing holds it back: the next claim gets it
)

// Explain returns what the ready tasks of a queue are waiting for.
func (a Queues) Explain(ctx context.Context, name string) (*QueueExplanation, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperatorServiceClient(a.rpc).ExplainQueue, &pawlv1.ExplainQueueRequest{Queue: name})
	return answer(queueExplanationOf, resp, err, "explain queue %q", name)
}

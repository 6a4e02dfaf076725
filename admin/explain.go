package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/pawltype"

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
	ReasonWorkersUnknown      ReasonCode = "workers_unknown" // a node did not answer, or the workers that hold tasks of its queue may be gone
	ReasonHigherPriority      ReasonCode = "higher_priority" // tasks of a higher priority go first
	ReasonOtherKeys           ReasonCode = "other_keys"      // it is the turn of other keys
	ReasonOlderTasks          ReasonCode = "older_tasks"     // earlier tasks of its key and priority go first
	// no worker that takes it has a free slot, or all take tasks of other queues first
	ReasonWorkersBusy ReasonCode = "workers_busy"
	ReasonNext        ReasonCode = "next" // nothing holds it back: the next claim gets it
)

// Explanation says why a task is not running, which worker runs it, or how it ended.
type Explanation struct {
	TaskID  string
	State   pawltype.State // "": unknown, because no replica of its shard could be reached
	Status  pawltype.Status
	Queue   string
	Type    string
	Key     string
	Reasons []Reason // at least one, in the order of the codes
}

// Reason is one thing that keeps a task from running. Fields that don't apply are zero.
type Reason struct {
	Code    ReasonCode
	Detail  string // the facts, in a sentence
	Change  string // what would change it
	Since   time.Time
	Until   time.Time // when it will be over at the latest
	Queue   string
	Type    string
	Key     string
	Cause   string // the reason given for a pause or an end; how the attempt ended that is being retried, or "delay"
	Error   string // of the last attempt; for ReasonOnItsWay, of the last delivery attempt
	Limit   int    // tasks that may run at the same time
	Rate    RateLimit
	Running []TaskHolder // up to 10 of the tasks that use up the limit; for ReasonRunning, the task itself
	Types   []string     // types that workers take, up to 10
	// tasks (or keys) that go first; for ReasonOnItsWay, failed deliveries; for a queue, the ready tasks that wait for
	// this
	Count int64
	More  bool   // there are more than Count or Types say
	Shard uint32 // of a spread queue: the shard that this concerns; 0: all
}

// TaskHolder is a task that a worker holds.
type TaskHolder struct {
	TaskID string
	Worker string
	Since  time.Time
	Until  time.Time // when its lease ends
}

// QueueExplanation describes what the ready tasks of a queue are waiting for.
type QueueExplanation struct {
	Queue     string
	Ready     int64
	Claimable int64 // ready tasks that no pause, breaker or limit holds back
	Claimed   int64
	Waiting   int64 // scheduled and retrying
	// Reasons say in Count how many ready tasks wait for each. A task that waits for several reasons is counted in each of them, but of the
	// reasons that concern its key only in the first.
	Reasons       []Reason
	Keys          []HeldKey      // keys with the most tasks held by their own pause or limit, up to 10
	UnservedTypes []UnservedType // types of ready tasks that no worker takes, up to 10
	NextDue       time.Time      // earliest due time of the scheduled and retrying tasks
	OldestReadyAt time.Time      // since when the oldest ready task has been ready
	Partial       bool           // a shard could not be reached, or has too many keys: the numbers leave it out
	Missing       []pawltype.Missing
}

// HeldKey is a key whose tasks are held by the key's own pause or limit.
type HeldKey struct {
	Key   string
	Code  ReasonCode // ReasonKeyPaused, ReasonKeyMaxRunning or ReasonKeyRate
	Tasks int64
	Until time.Time // for a rate: when the next token is available
}

// UnservedType is a type that no worker takes.
type UnservedType struct {
	Type  string
	Tasks int64
}

// Explain returns what the ready tasks of a queue are waiting for.
func (a Queues) Explain(ctx context.Context, name string) (*QueueExplanation, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperatorServiceClient(a.rpc).ExplainQueue, &pawlv1.ExplainQueueRequest{Queue: name})
	if err != nil {
		return nil, fmt.Errorf("explain queue %q: %w", name, err)
	}
	e := &QueueExplanation{Queue: resp.GetQueue(), Ready: resp.GetReady(), Claimable: resp.GetClaimable(), Claimed: resp.GetClaimed(),
		Waiting: resp.GetWaiting(), Reasons: reasonsOf(resp.GetReasons()), NextDue: convert.Time(resp.GetNextDue()),
		OldestReadyAt: convert.Time(resp.GetOldestReadyAt()), Partial: resp.GetPartial(), Missing: convert.Missing(resp.GetMissing())}
	for _, k := range resp.GetKeys() {
		e.Keys = append(e.Keys, HeldKey{Key: k.GetKey(), Code: ReasonCode(k.GetCode()), Tasks: k.GetTasks(), Until: convert.Time(k.GetUntil())})
	}
	for _, t := range resp.GetIdleTypes() {
		e.UnservedTypes = append(e.UnservedTypes, UnservedType{Type: t.GetType(), Tasks: t.GetTasks()})
	}
	return e, nil
}

func reasonsOf(list []*pawlv1.Reason) []Reason {
	reasons := make([]Reason, len(list))
	for i, p := range list {
		rate := p.GetRate()
		r := Reason{Code: ReasonCode(p.GetCode()), Detail: p.GetDetail(), Change: p.GetChange(), Since: convert.Time(p.GetSince()),
			Until: convert.Time(p.GetUntil()), Queue: p.GetQueue(), Type: p.GetType(), Key: p.GetKey(), Cause: p.GetCause(), Error: p.GetError(),
			Limit: int(p.GetLimit()), Rate: RateLimit{Limit: int(rate.GetLimit()), Period: rate.GetPeriod().AsDuration(),
				Burst: int(rate.GetBurst())},
			Types: p.GetTypes(), Count: p.GetCount(), More: p.GetMore(), Shard: p.GetShard()}
		for _, t := range p.GetRunning() {
			r.Running = append(r.Running, TaskHolder{TaskID: t.GetTaskId(), Worker: t.GetWorker(), Since: convert.Time(t.GetSince()),
				Until: convert.Time(t.GetUntil())})
		}
		reasons[i] = r
	}
	return reasons
}

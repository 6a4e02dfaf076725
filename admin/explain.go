package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// ReasonCode is the code of a Reason. Later brokers may have more of them.
type ReasonCode string

// The codes, in the order in which they decide.
const (
	ReasonNoLeader            ReasonCode = "no_leader" // nobody leads its shard
	ReasonRunning             ReasonCode = "running"
	ReasonEnded               ReasonCode = "ended"
	ReasonOnItsWay            ReasonCode = "on_its_way" // what follows it, or itself as it was moved, has not come to its queue yet
	ReasonNotDue              ReasonCode = "not_due"    // delayed, put off, or failed and to be tried again
	ReasonUnique              ReasonCode = "unique"     // the task that holds its unique key runs
	ReasonKeyOrder            ReasonCode = "key_order"  // a task before it with the same key has not ended, in a queue with a strict order of keys
	ReasonQueuePaused         ReasonCode = "queue_paused"
	ReasonTypePaused          ReasonCode = "type_paused"
	ReasonBreakerOpen         ReasonCode = "breaker_open" // too many attempts of its type failed
	ReasonKeyPaused           ReasonCode = "key_paused"
	ReasonQueueMaxRunning     ReasonCode = "queue_max_running"     // its queue runs as many as it may
	ReasonNamespaceMaxRunning ReasonCode = "namespace_max_running" // all queues of its namespace together run as many as they may
	ReasonQueueRate           ReasonCode = "queue_rate"            // its queue has no token left
	ReasonKeyMaxRunning       ReasonCode = "key_max_running"
	ReasonKeyRate             ReasonCode = "key_rate"
	ReasonDraining            ReasonCode = "draining"  // the leader of its shard is about to stop
	ReasonNoWorker            ReasonCode = "no_worker" // nobody takes tasks of its queue
	ReasonNoWorkerForType     ReasonCode = "no_worker_for_type"
	ReasonWorkersUnknown      ReasonCode = "workers_unknown" // whether a worker takes it: a node gave no answer, or who holds others of its queue may be gone
	ReasonHigherPriority      ReasonCode = "higher_priority" // tasks of a higher priority go first
	ReasonOtherKeys           ReasonCode = "other_keys"      // other keys have their turn first
	ReasonOlderTasks          ReasonCode = "older_tasks"     // tasks of its key and priority that came before it
	ReasonWorkersBusy         ReasonCode = "workers_busy"    // nobody who takes it has a free slot, or all take tasks of other queues first
	ReasonNext                ReasonCode = "next"            // nothing holds it: the next claim gets it
)

// Explanation says why a task is not running, or by whom it runs, or how it has ended.
type Explanation struct {
	TaskID  string
	State   pawltype.State // "": not known, since no replica of its shard could be asked
	Status  pawltype.Status
	Queue   string
	Type    string
	Key     string
	Reasons []Reason // at least one; the one that decides first is the first
}

// Reason is one thing that stands between a task and a worker. What does not belong to it is zero.
type Reason struct {
	Code    ReasonCode
	Detail  string // a sentence with the facts
	Change  string // what would change it
	Since   time.Time
	Until   time.Time // it is over then at the latest
	Queue   string
	Type    string
	Key     string
	Cause   string // what was said of a pause; the reason of an end; how the attempt ended that is repeated, or "delay"
	Error   string // of the last attempt; of the last try to bring what is on its way
	Limit   int    // tasks that may run at once
	Rate    RateLimit
	Running []TaskHolder // up to 10 of the tasks that use up the limit; of a task that runs, itself
	Types   []string     // that workers take, up to 10
	Count   int64        // what goes first: tasks, of ReasonOtherKeys the keys; of ReasonOnItsWay the tries in vain. Of a queue: the ready tasks that wait for this
	More    bool         // there are more than Count, or than Types
	Shard   uint32       // of a queue that is shared out: whose reason it is; 0: that of all
}

// TaskHolder is a task that a worker holds.
type TaskHolder struct {
	TaskID string
	Worker string
	Since  time.Time
	Until  time.Time // of its lease
}

// QueueExplanation says what the ready tasks of a queue wait for.
type QueueExplanation struct {
	Queue     string
	Ready     int64
	Claimable int64 // of the ready: no pause, no breaker and no limit holds them back
	Claimed   int64
	Waiting   int64 // scheduled and retrying
	// Reasons say in Count how many ready tasks wait for them. A task that waits for several is counted at each, but for those
	// of its key, of which the first counts.
	Reasons       []Reason
	Keys          []HeldKey      // those with the most tasks held by what is their own, up to 10
	UnservedTypes []UnservedType // those of ready tasks that no worker takes, up to 10
	NextDue       time.Time      // of the scheduled and retrying
	OldestReadyAt time.Time      // since when the task is ready that is so longest
	Partial       bool           // a shard could not be asked, or has too many keys: the numbers are those of the rest
}

// HeldKey is a key whose tasks wait for what is the key's own.
type HeldKey struct {
	Key   string
	Code  ReasonCode // ReasonKeyPaused, ReasonKeyMaxRunning or ReasonKeyRate
	Tasks int64
	Until time.Time // of a rate: when a token comes
}

// UnservedType is a type that no worker takes.
type UnservedType struct {
	Type  string
	Tasks int64
}

// Explain says what the ready tasks of a queue wait for.
func (a Queues) Explain(ctx context.Context, name string) (*QueueExplanation, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperatorServiceClient(a.rpc).ExplainQueue, &pawlv1.ExplainQueueRequest{Queue: name})
	if err != nil {
		return nil, fmt.Errorf("explain queue %q: %w", name, err)
	}
	e := &QueueExplanation{Queue: resp.GetQueue(), Ready: resp.GetReady(), Claimable: resp.GetClaimable(), Claimed: resp.GetClaimed(), Waiting: resp.GetWaiting(),
		Reasons: reasonsOf(resp.GetReasons()), NextDue: convert.Time(resp.GetNextDue()), OldestReadyAt: convert.Time(resp.GetOldestReadyAt()), Partial: resp.GetPartial()}
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
		r := Reason{Code: ReasonCode(p.GetCode()), Detail: p.GetDetail(), Change: p.GetChange(), Since: convert.Time(p.GetSince()), Until: convert.Time(p.GetUntil()),
			Queue: p.GetQueue(), Type: p.GetType(), Key: p.GetKey(), Cause: p.GetCause(), Error: p.GetError(), Limit: int(p.GetLimit()),
			Rate:  RateLimit{Limit: int(rate.GetLimit()), Period: rate.GetPeriod().AsDuration(), Burst: int(rate.GetBurst())},
			Types: p.GetTypes(), Count: p.GetCount(), More: p.GetMore(), Shard: p.GetShard()}
		for _, t := range p.GetRunning() {
			r.Running = append(r.Running, TaskHolder{TaskID: t.GetTaskId(), Worker: t.GetWorker(), Since: convert.Time(t.GetSince()), Until: convert.Time(t.GetUntil())})
		}
		reasons[i] = r
	}
	return reasons
}

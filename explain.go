package pawl

import (
	"context"
	"fmt"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Why is the code of a Reason. Later brokers may have more of them.
type Why string

// The codes, in the order in which they decide.
const (
	WhyNoLeader            Why = "no_leader" // nobody leads its shard
	WhyRunning             Why = "running"
	WhyEnded               Why = "ended"
	WhyOnItsWay            Why = "on_its_way" // what follows it, or itself as it was moved, has not come to its queue yet
	WhyNotDue              Why = "not_due"    // delayed, put off, or failed and to be tried again
	WhyUnique              Why = "unique"     // the task that holds its unique key runs
	WhyQueuePaused         Why = "queue_paused"
	WhyTypePaused          Why = "type_paused"
	WhyBreakerOpen         Why = "breaker_open" // too many attempts of its type failed
	WhyKeyPaused           Why = "key_paused"
	WhyQueueMaxRunning     Why = "queue_max_running"     // its queue runs as many as it may
	WhyNamespaceMaxRunning Why = "namespace_max_running" // all queues of its namespace together run as many as they may
	WhyQueueRate           Why = "queue_rate"            // its queue has no token left
	WhyKeyMaxRunning       Why = "key_max_running"
	WhyKeyRate             Why = "key_rate"
	WhyDraining            Why = "draining"  // the leader of its shard is about to stop
	WhyNoWorker            Why = "no_worker" // nobody takes tasks of its queue
	WhyNoWorkerForType     Why = "no_worker_for_type"
	WhyWorkersUnknown      Why = "workers_unknown" // whether a worker takes it: a node gave no answer, or who holds others of its queue may be gone
	WhyHigherPriority      Why = "higher_priority" // tasks of a higher priority go first
	WhyOtherKeys           Why = "other_keys"      // other keys have their turn first
	WhyOlderTasks          Why = "older_tasks"     // tasks of its key and priority that came before it
	WhyWorkersBusy         Why = "workers_busy"    // nobody who takes it has a free slot, or all take tasks of other queues first
	WhyNext                Why = "next"            // nothing holds it: the next claim gets it
)

// Explanation says why a task is not running, or by whom it runs, or how it has ended.
type Explanation struct {
	TaskID  string
	State   State // "": not known, since no replica of its shard could be asked
	Status  Status
	Queue   string
	Type    string
	Key     string
	Reasons []Reason // at least one; the one that decides first is the first
}

// Reason is one thing that stands between a task and a worker. What does not belong to it is zero.
type Reason struct {
	Code    Why
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
	Rate    Rate
	Running []Runner // up to 10 of the tasks that use up the limit; of a task that runs, itself
	Types   []string // that workers take, up to 10
	Count   int64    // what goes first: tasks, of WhyOtherKeys the keys; of WhyOnItsWay the tries in vain. Of a queue: the ready tasks that wait for this
	More    bool     // there are more than Count, or than Types
	Shard   uint32   // of a queue that is shared out: whose reason it is; 0: that of all
}

// Runner is a task that a worker holds.
type Runner struct {
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
	Keys          []HeldKey  // those with the most tasks held by what is their own, up to 10
	IdleTypes     []IdleType // those of ready tasks that no worker takes, up to 10
	NextDue       time.Time  // of the scheduled and retrying
	OldestReadyAt time.Time  // since when the task is ready that is so longest
	Partial       bool       // a shard could not be asked, or has too many keys: the numbers are those of the rest
}

// HeldKey is a key whose tasks wait for what is the key's own.
type HeldKey struct {
	Key   string
	Code  Why // WhyKeyPaused, WhyKeyMaxRunning or WhyKeyRate
	Tasks int64
	Until time.Time // of a rate: when a token comes
}

// IdleType is a type that no worker takes.
type IdleType struct {
	Type  string
	Tasks int64
}

// Explain says why a task is not running, and what would change that. It also answers while the task's shard has no leader.
func (c *Client) Explain(ctx context.Context, id string) (*Explanation, error) {
	resp, err := call(ctx, c, true, c.producer.ExplainTask, &pawlv1.ExplainTaskRequest{TaskId: id})
	if err != nil {
		return nil, fmt.Errorf("explain %q: %w", id, err)
	}
	return &Explanation{TaskID: resp.GetTaskId(), State: stateOf(resp.GetState()), Status: statusOf(resp.GetStatus()), Queue: resp.GetQueue(),
		Type: resp.GetType(), Key: resp.GetKey(), Reasons: reasonsOf(resp.GetReasons())}, nil
}

// ExplainQueue says what the ready tasks of a queue wait for.
func (a Admin) ExplainQueue(ctx context.Context, name string) (*QueueExplanation, error) {
	resp, err := operate(ctx, a, true, a.client.operator.ExplainQueue, &pawlv1.ExplainQueueRequest{Queue: name})
	if err != nil {
		return nil, fmt.Errorf("explain queue %q: %w", name, err)
	}
	e := &QueueExplanation{Queue: resp.GetQueue(), Ready: resp.GetReady(), Claimable: resp.GetClaimable(), Claimed: resp.GetClaimed(), Waiting: resp.GetWaiting(),
		Reasons: reasonsOf(resp.GetReasons()), NextDue: timeOf(resp.GetNextDue()), OldestReadyAt: timeOf(resp.GetOldestReadyAt()), Partial: resp.GetPartial()}
	for _, k := range resp.GetKeys() {
		e.Keys = append(e.Keys, HeldKey{Key: k.GetKey(), Code: Why(k.GetCode()), Tasks: k.GetTasks(), Until: timeOf(k.GetUntil())})
	}
	for _, t := range resp.GetIdleTypes() {
		e.IdleTypes = append(e.IdleTypes, IdleType{Type: t.GetType(), Tasks: t.GetTasks()})
	}
	return e, nil
}

func reasonsOf(list []*pawlv1.Reason) []Reason {
	reasons := make([]Reason, len(list))
	for i, p := range list {
		r := Reason{Code: Why(p.GetCode()), Detail: p.GetDetail(), Change: p.GetChange(), Since: timeOf(p.GetSince()), Until: timeOf(p.GetUntil()),
			Queue: p.GetQueue(), Type: p.GetType(), Key: p.GetKey(), Cause: p.GetCause(), Error: p.GetError(), Limit: int(p.GetLimit()),
			Types: p.GetTypes(), Count: p.GetCount(), More: p.GetMore(), Shard: p.GetShard()}
		if rate := p.GetRate(); rate != nil {
			r.Rate = Rate{Limit: int(rate.GetLimit()), Period: rate.GetPeriod().AsDuration(), Burst: int(rate.GetBurst())}
		}
		for _, t := range p.GetRunning() {
			r.Running = append(r.Running, Runner{TaskID: t.GetTaskId(), Worker: t.GetWorker(), Since: timeOf(t.GetSince()), Until: timeOf(t.GetUntil())})
		}
		reasons[i] = r
	}
	return reasons
}

package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Stats counts the events of a time window, and how long tasks waited and ran in it. Each node counts the events of the shards it leads;
// Stats sums up all nodes.
type Stats struct {
	Window, Step time.Duration
	Start        time.Time     // of the first step; the last step is the current one
	Series       []EventCounts // per step
	Totals       EventCounts
	FailureRate  float64            // share of ended attempts that failed, crashed or timed out, 0 to 1
	Wait         Latency            // from ready to claimed
	Run          Latency            // from claimed to the end of the run
	Failing      []FailingType      // in the last hour, most failures first
	Missing      []pawltype.Missing // shards and nodes whose part is missing
}

// EventCounts counts events by kind.
type EventCounts struct {
	Enqueued, Claimed, Succeeded int64
	Failed                       int64 // attempts, including those that timed out
	Crashed                      int64 // attempts whose lease was lost
	Dead, Poisoned               int64
	Discarded                    int64 // including expired tasks and those moved to another queue
	Cancelled, Replayed          int64
}

// Latency summarizes how long something took. Quantiles are approximate, because they come from histogram buckets.
type Latency struct {
	Count               int64
	Mean, P50, P95, P99 time.Duration
}

// QueueRates holds events per second.
type QueueRates struct {
	In, Out float64 // enqueued or replayed; ended in any state
	Failed  float64 // attempts that failed, crashed or timed out
}

// QueueSeries counts the events of a queue in a time window, in at most 60 steps.
type QueueSeries struct {
	Step    time.Duration // 2 s for 2 min, 10 s for 5 min, 1 min for 1 h, 30 min for 24 h
	Start   time.Time     // of the first step; the last step is the current one
	In, Out []int64       // enqueued or replayed; ended in any state
	Failed  []int64       // attempts that failed, crashed or timed out
	// Included in Out.
	Succeeded, Poisoned []int64
}

// FailingType is a task type of a queue with failed attempts.
type FailingType struct {
	Queue, Type              string // type "_other": all types that are not counted separately
	Failures                 int64
	LastError, LastErrorType string
	LastAt                   time.Time
}

// NamespaceStats has the Stats of all queues together, their current totals, and what needs attention.
type NamespaceStats struct {
	Stats
	Queues    QueueTotals
	Attention []Attention // most severe first; similar problems are combined
}

// QueueTotals counts the current tasks of all queues.
type QueueTotals struct {
	Queues                                              int64 // queues that have ever had a task
	Scheduled, Ready, Claimed, Retrying, Dead, Poisoned int64
	OldestReady                                         time.Duration // among the queues with the most ready tasks
	OldestReadyQueue                                    string
}

// Attention is a problem that an operator should look at.
type Attention struct {
	// "dead_letters", "poisoned", "oldest_wait", "no_worker", "breaker_open", "queue_paused", "failure_rate",
	// "schedule_late", "webhook", "shard", "node", "clock", "disk", "certificate"
	Kind     string
	Severity string  // "critical", "warning"
	Subject  string  // name of the queue, schedule, webhook, shard or node; of several, the most severe
	Detail   string  // a sentence about all of them
	Value    float64 // of Subject: tasks, seconds, a fraction of 1, or bytes
	More     int64   // how many others besides Subject are affected
}

// Stats returns statistics for all tasks in a time window: 2 minutes, 5 minutes, 1 hour or 24 hours; 0: 1 hour.
func (a Client) Stats(ctx context.Context, window time.Duration) (*NamespaceStats, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewStatsServiceClient(a.rpc).GetStats,
		&pawlv1.GetStatsRequest{Window: convert.Duration(window)})
	if err != nil {
		return nil, fmt.Errorf("stats: %w", err)
	}
	q := resp.GetQueues()
	out := &NamespaceStats{Stats: statsOf(resp.GetStats()), Queues: QueueTotals{Queues: q.GetQueues(), Scheduled: q.GetScheduled(),
		Ready: q.GetReady(), Claimed: q.GetClaimed(), Retrying: q.GetRetrying(), Dead: q.GetDead(), Poisoned: q.GetPoisoned(),
		OldestReady: convert.Seconds(q.GetOldestReadyAgeSeconds()), OldestReadyQueue: q.GetOldestReadyQueue()}}
	for _, p := range resp.GetAttention() {
		out.Attention = append(out.Attention, Attention{Kind: p.GetKind(), Severity: p.GetSeverity(), Subject: p.GetSubject(),
			Detail: p.GetDetail(), Value: p.GetValue(), More: p.GetMore()})
	}
	return out, nil
}

// Stats returns statistics for the tasks of a queue in a time window, as Client.Stats.
func (a Queues) Stats(ctx context.Context, queue string, window time.Duration) (*Stats, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewStatsServiceClient(a.rpc).GetQueueStats, &pawlv1.GetQueueStatsRequest{Queue: queue,
		Window: convert.Duration(window)})
	if err != nil {
		return nil, fmt.Errorf("stats of queue %q: %w", queue, err)
	}
	s := statsOf(resp.GetStats())
	return &s, nil
}

// QueueScale says how many workers a queue needs: enough for the arrivals and to work off the backlog within the target, and no fewer than
// are running tasks now.
type QueueScale struct {
	Workers           int64
	Slots             float64 // tasks that should run at the same time
	Active            bool    // there is work to do
	Backlog           int64   // ready tasks that wait only for a worker
	Running           int64
	ArrivalsPerSecond float64            // tasks that became ready in the last minute; while tasks are held back, no more than were claimed
	Run               time.Duration      // average per task; 0: none ended in the last day, so 1 s is assumed
	Missing           []pawltype.Missing // nodes whose counts of arrivals and runs are missing; without one of its shards, the call fails
}

// Scale returns how many workers a queue needs now if each runs slots tasks at the same time (1 to 100,000; 0: 10) and the backlog should
// be worked off within target (1 s to 24 h; 0: 1 minute).
func (a Queues) Scale(ctx context.Context, queue string, target time.Duration, slots int) (*QueueScale, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewStatsServiceClient(a.rpc).GetQueueScale,
		&pawlv1.GetQueueScaleRequest{Queue: queue, Target: convert.Duration(target), Slots: convert.Int32(slots)})
	if err != nil {
		return nil, fmt.Errorf("scale of queue %q: %w", queue, err)
	}
	return &QueueScale{Workers: resp.GetWorkers(), Slots: resp.GetSlots(), Active: resp.GetActive(), Backlog: resp.GetBacklog(),
		Running: resp.GetRunning(), ArrivalsPerSecond: resp.GetArrivalPerSecond(), Run: convert.Seconds(resp.GetRunSeconds()),
		Missing: convert.Missing(resp.GetMissing())}, nil
}

func statsOf(p *pawlv1.Stats) Stats {
	s := Stats{Window: p.GetWindow().AsDuration(), Step: p.GetStep().AsDuration(), Start: convert.Time(p.GetStart()),
		FailureRate: p.GetFailureRate(), Wait: latencyOf(p.GetWait()), Run: latencyOf(p.GetRun()), Missing: convert.Missing(p.GetMissing())}
	s.Totals = countsOf(p.GetTotals())
	r := p.GetSeries()
	s.Series = make([]EventCounts, len(r.GetEnqueued()))
	for i := range s.Series {
		at := func(list []int64) int64 {
			if i < len(list) {
				return list[i]
			}
			return 0
		}
		s.Series[i] = EventCounts{at(r.GetEnqueued()), at(r.GetClaimed()), at(r.GetSucceeded()), at(r.GetFailed()),
			at(r.GetCrashed()), at(r.GetDead()), at(r.GetPoisoned()), at(r.GetDiscarded()), at(r.GetCancelled()), at(r.GetReplayed())}
	}
	for _, f := range p.GetFailing() {
		s.Failing = append(s.Failing, FailingType{Queue: f.GetQueue(), Type: f.GetType(), Failures: f.GetFailures(), LastError: f.GetLastError(),
			LastErrorType: f.GetLastErrorType(), LastAt: convert.Time(f.GetLastAt())})
	}
	return s
}

func queueSeriesOf(p *pawlv1.QueueSeries) *QueueSeries {
	if p == nil {
		return nil
	}
	return &QueueSeries{Step: p.GetStep().AsDuration(), Start: convert.Time(p.GetStart()), In: p.GetIn(), Out: p.GetOut(),
		Failed: p.GetFailed(), Succeeded: p.GetSucceeded(), Poisoned: p.GetPoisoned()}
}

func latencyOf(p *pawlv1.Latency) Latency {
	return Latency{Count: p.GetCount(), Mean: convert.Seconds(p.GetMeanSeconds()), P50: convert.Seconds(p.GetP50Seconds()),
		P95: convert.Seconds(p.GetP95Seconds()), P99: convert.Seconds(p.GetP99Seconds())}
}

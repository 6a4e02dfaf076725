package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Stats are the events of a window of time, and how long tasks waited and ran in it. Each node counts what happens in the shards that
// it leads; Stats add up what all nodes saw.
type Stats struct {
	Window, Step time.Duration
	Start        time.Time     // of the first step; the last one is the one that runs
	Series       []EventCounts // of each step
	Totals       EventCounts
	FailureRate  float64       // of the attempts that ended: those that failed, crashed or timed out, 0 to 1
	Wait         Latency       // from ready to claimed
	Run          Latency       // from claimed to the end of the run
	Failing      []FailingType // in the last hour, the most failures first
	MissingNodes []string      // that did not say what they saw
}

// EventCounts are the events of some time.
type EventCounts struct {
	Enqueued, Claimed, Succeeded int64
	Failed                       int64 // attempts, those that timed out too
	Crashed                      int64 // attempts whose lease was lost
	Dead, Poisoned               int64
	Discarded                    int64 // also expired, or moved to another queue
	Cancelled, Replayed          int64
}

// Latency says how long something took. Quantiles are taken from buckets, and are about right.
type Latency struct {
	Count               int64
	Mean, P50, P95, P99 time.Duration
}

// QueueRates are events a second.
type QueueRates struct {
	In, Out float64 // enqueued or replayed; ended, in whatever way
	Failed  float64 // attempts that failed, crashed or timed out
}

// QueueSeries are the events of a queue in a window of time, in at most 60 steps.
type QueueSeries struct {
	Step    time.Duration // 2 s in 2 min, 10 s in 5 min, 1 min in an hour, 30 min in 24 hours
	Start   time.Time     // of the first step; the last one is the one that runs
	In, Out []int64       // enqueued or replayed; ended, in whatever way
	Failed  []int64       // attempts that failed, crashed or timed out
	// Of those in Out.
	Succeeded, Poisoned []int64
}

// FailingType is a type of a queue whose attempts ended badly.
type FailingType struct {
	Queue, Type              string // type "_other": of those that are not counted apart
	Failures                 int64
	LastError, LastErrorType string
	LastAt                   time.Time
}

// NamespaceStats are the Stats of all queues together, how they stand, and what needs attention now.
type NamespaceStats struct {
	Stats
	Queues    QueueTotals
	Attention []Attention // the gravest first; many of one matter are one line
}

// QueueTotals are the tasks of all queues as they stand now.
type QueueTotals struct {
	Queues                                              int64 // that ever had a task
	Scheduled, Ready, Claimed, Retrying, Dead, Poisoned int64
	OldestReady                                         time.Duration // of the queues with the most ready tasks
	OldestReadyQueue                                    string
}

// Attention is something that somebody should look at.
type Attention struct {
	Kind     string  // "dead_letters", "oldest_wait", "no_worker", "breaker_open", "queue_paused", "failure_rate", "schedule_late", "webhook", "shard", "node", "clock", "disk", "certificate"
	Severity string  // "critical", "warning"
	Subject  string  // name of the queue, schedule, webhook, shard or node; of many, the gravest
	Detail   string  // a sentence, about all of them
	Value    float64 // the subject's: tasks, seconds, a part of 1, bytes
	More     int64   // how many others than the subject it is about
}

// Stats tells what happened to all tasks in a window of time: 2 or 5 minutes, an hour or 24; 0: an hour.
func (a Client) Stats(ctx context.Context, window time.Duration) (*NamespaceStats, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewStatsServiceClient(a.rpc).GetStats, &pawlv1.GetStatsRequest{Window: convert.Duration(window)})
	if err != nil {
		return nil, fmt.Errorf("stats: %w", err)
	}
	q := resp.GetQueues()
	out := &NamespaceStats{Stats: statsOf(resp.GetStats()), Queues: QueueTotals{Queues: q.GetQueues(), Scheduled: q.GetScheduled(), Ready: q.GetReady(),
		Claimed: q.GetClaimed(), Retrying: q.GetRetrying(), Dead: q.GetDead(), Poisoned: q.GetPoisoned(),
		OldestReady: convert.Seconds(q.GetOldestReadyAgeSeconds()), OldestReadyQueue: q.GetOldestReadyQueue()}}
	for _, p := range resp.GetAttention() {
		out.Attention = append(out.Attention, Attention{Kind: p.GetKind(), Severity: p.GetSeverity(), Subject: p.GetSubject(), Detail: p.GetDetail(), Value: p.GetValue(), More: p.GetMore()})
	}
	return out, nil
}

// Stats tells what happened to the tasks of a queue in a window of time, as of Stats.
func (a Queues) Stats(ctx context.Context, queue string, window time.Duration) (*Stats, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewStatsServiceClient(a.rpc).GetQueueStats, &pawlv1.GetQueueStatsRequest{Queue: queue, Window: convert.Duration(window)})
	if err != nil {
		return nil, fmt.Errorf("stats of queue %q: %w", queue, err)
	}
	s := statsOf(resp.GetStats())
	return &s, nil
}

// QueueScale says how many workers a queue needs: enough for what comes in and for the backlog within a target, and no fewer than run
// tasks now.
type QueueScale struct {
	Workers           int64
	Slots             float64 // tasks that should run at once
	Active            bool    // there is something to do
	Backlog           int64   // ready tasks that nothing but workers holds back
	Running           int64
	ArrivalsPerSecond float64       // that became ready in the last minute; while tasks are held back, no more than were claimed
	Run               time.Duration // of one task on average; 0: none has ended in a day, and 1 s is assumed
}

// Scale tells how many workers a queue needs now if each runs so many tasks at once, 1 to 100,000, and the backlog is to be done
// within a target, 1 s to 24 h. Zeros mean 10 tasks and a minute.
func (a Queues) Scale(ctx context.Context, queue string, target time.Duration, slots int) (*QueueScale, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewStatsServiceClient(a.rpc).GetQueueScale,
		&pawlv1.GetQueueScaleRequest{Queue: queue, Target: convert.Duration(target), Slots: convert.Int32(slots)})
	if err != nil {
		return nil, fmt.Errorf("scale of queue %q: %w", queue, err)
	}
	return &QueueScale{Workers: resp.GetWorkers(), Slots: resp.GetSlots(), Active: resp.GetActive(), Backlog: resp.GetBacklog(), Running: resp.GetRunning(),
		ArrivalsPerSecond: resp.GetArrivalPerSecond(), Run: convert.Seconds(resp.GetRunSeconds())}, nil
}

func statsOf(p *pawlv1.Stats) Stats {
	s := Stats{Window: p.GetWindow().AsDuration(), Step: p.GetStep().AsDuration(), Start: convert.Time(p.GetStart()), FailureRate: p.GetFailureRate(),
		Wait: latencyOf(p.GetWait()), Run: latencyOf(p.GetRun()), MissingNodes: p.GetMissingNodes()}
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
		s.Series[i] = EventCounts{at(r.GetEnqueued()), at(r.GetClaimed()), at(r.GetSucceeded()), at(r.GetFailed()), at(r.GetCrashed()), at(r.GetDead()),
			at(r.GetPoisoned()), at(r.GetDiscarded()), at(r.GetCancelled()), at(r.GetReplayed())}
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
	return &QueueSeries{Step: p.GetStep().AsDuration(), Start: convert.Time(p.GetStart()), In: p.GetIn(), Out: p.GetOut(), Failed: p.GetFailed(), Succeeded: p.GetSucceeded(), Poisoned: p.GetPoisoned()}
}

func latencyOf(p *pawlv1.Latency) Latency {
	return Latency{Count: p.GetCount(), Mean: convert.Seconds(p.GetMeanSeconds()), P50: convert.Seconds(p.GetP50Seconds()), P95: convert.Seconds(p.GetP95Seconds()), P99: convert.Seconds(p.GetP99Seconds())}
}

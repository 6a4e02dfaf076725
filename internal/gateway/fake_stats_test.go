package gateway

import (
	"context"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// fakeStats has statistics for the last minute: tasks of three types in queue "mail", and of one in "sms". Node n3 does not answer.
type fakeStats struct{ recorder *stats.Recorder }

func newFakeStats() fakeStats {
	now := time.Now()
	f := fakeStats{stats.New(now.Add(-time.Minute))}
	for i, e := range []struct {
		queue, typ string
		n          int
		ran        time.Duration
		counts     []stats.Counter
	}{
		{"mail", "welcome", 30, 0, []stats.Counter{stats.Enqueued}}, {"mail", "welcome", 20, 2 * time.Second,
			[]stats.Counter{stats.Succeeded}},
		{"mail", "welcome", 5, time.Second, []stats.Counter{stats.Failed}}, {"mail", "bye", 4, 3 * time.Second,
			[]stats.Counter{stats.Failed, stats.Dead}},
		{"mail", "bye", 1, time.Second, []stats.Counter{stats.Failed, stats.Poisoned}}, {"mail", "bye", 3, time.Second,
			[]stats.Counter{stats.Crashed}},
		{"mail", "bye", 7, 0, []stats.Counter{stats.Cancelled}}, {"mail", "bye", 8, 0, []stats.Counter{stats.Discarded}},
		{"mail", "bye", 9, 0, []stats.Counter{stats.Replayed}}, {"mail", "quiet", 6, time.Minute, []stats.Counter{stats.Succeeded}},
		{"sms", "welcome", 2, time.Second, []stats.Counter{stats.Succeeded}},
	} {
		ev := stats.Event{Namespace: "default", Queue: e.queue, Type: e.typ, Ran: e.ran, Worker: "w1", Task: task.NewID(1, int64(i), 7)}
		for _, c := range e.counts {
			if ev.Counts = ev.Counts.With(c); c == stats.Failed || c == stats.Crashed {
				ev.Error, ev.ErrorType = "no route", "net.Error"
			}
		}
		if e.ran == 0 {
			ev.Ran, ev.Readied = -1, e.counts[0] == stats.Enqueued
		}
		claimed := stats.Event{Namespace: "default", Queue: e.queue, Type: e.typ, Counts: stats.Set(0).With(stats.Claimed),
			Waited: 3 * time.Second}
		for range e.n {
			if f.recorder.Record(now.Add(-30*time.Second), []stats.Event{ev}); e.ran > 0 {
				f.recorder.Record(now.Add(-30*time.Second), []stats.Event{claimed})
			}
		}
	}
	return f
}

// noStats has counted nothing.
type noStats struct{ fakeStats }

func (noStats) Stats(context.Context, stats.Queue, stats.Window) (none verb.Partial[stats.Report]) {
	return none
}

func (noStats) Briefs(_ context.Context, _ string, names []string) verb.Partial[[]stats.Brief] {
	return verb.Partial[[]stats.Brief]{Value: make([]stats.Brief, len(names))}
}

func (noStats) Trends(context.Context, string, []string, stats.Window) (none verb.Partial[[]stats.Trend]) {
	return none
}

func (noStats) NamespaceStatus(context.Context, string) (none verb.Partial[broker.NamespaceStatus]) {
	return none
}

func (noStats) QueueCounts(context.Context, broker.CountsQuery) (none verb.Partial[[]broker.QueueCount]) {
	return none
}

var missingNodes = []verb.Missing{{Node: "n3", Why: "hangs"}}

func (f fakeStats) Stats(_ context.Context, q stats.Queue, w stats.Window) verb.Partial[stats.Report] {
	return verb.Partial[stats.Report]{Value: f.recorder.Report(time.Now(), q, w), Missing: missingNodes}
}

func (f fakeStats) Briefs(_ context.Context, ns string, names []string) verb.Partial[[]stats.Brief] {
	return verb.Partial[[]stats.Brief]{Value: f.recorder.Briefs(time.Now(), ns, names)}
}

func (f fakeStats) Trends(_ context.Context, ns string, names []string, w stats.Window) verb.Partial[[]stats.Trend] {
	return verb.Partial[[]stats.Trend]{Value: f.recorder.Trends(time.Now(), ns, names, w)}
}

func (f fakeStats) NamespaceStatus(context.Context, string) verb.Partial[broker.NamespaceStatus] {
	return verb.Partial[broker.NamespaceStatus]{Value: broker.NamespaceStatus{Queues: []string{"mail", "sms"}, Scheduled: 1, Ready: 2,
		Claimed: 3, Retrying: 4, Dead: 5, Poisoned: 6, NewDead: 1, Busy: []*broker.QueueStatus{{Queue: "sms", OldestReady: time.Second},
			{Queue: "mail", OldestReady: time.Minute}, {Queue: "a", OldestReady: time.Minute}}},
		Missing: []verb.Missing{{Node: "n3", Why: "hangs"},
			{Shard: 4, Why: "did not answer in time"}}}
}

// QueueCounts returns three queues, of which "sms" has the most.
func (f fakeStats) QueueCounts(_ context.Context, q broker.CountsQuery) (counts verb.Partial[[]broker.QueueCount]) {
	for _, c := range []broker.QueueCount{{Queue: "mail", N: 5}, {Queue: "sms", N: 9}, {Queue: "bills", N: 1}} {
		// For dead letters, poisoned tasks, and queues without workers, one queue each is missing.
		if skip := map[task.State]string{task.Dead: "mail", task.Poisoned: "sms", task.Ready: "bills"}[q.State]; c.Queue != skip &&
			(q.Pattern == "" || task.Matches(q.Pattern, c.Queue)) {
			counts.Value = append(counts.Value, c)
		}
	}
	return counts
}

func (f fakeStats) TypeCounts(_ context.Context, ns, queue, pattern string, w stats.Window) verb.Partial[stats.TypeCounts] {
	return verb.Partial[stats.TypeCounts]{Value: f.recorder.TypeCounts(time.Now(), ns, w, func(q, typ string) bool {
		return (queue == "" || q == queue) && (pattern == "" || task.Matches(pattern, typ))
	}), Missing: missingNodes}
}

func (f fakeStats) TypeBriefs(_ context.Context, ns, queue string, types []string, w stats.Window) verb.Partial[[]stats.TypeBrief] {
	return verb.Partial[[]stats.TypeBrief]{Value: f.recorder.TypeBriefs(time.Now(), ns, w, types, func(q string) bool {
		return queue == "" || q == queue
	})}
}

func (f fakeStats) TypeStats(_ context.Context, q stats.TypeQuery, queue string) (out verb.Partial[stats.TypeReport]) {
	wanted := func(name string) bool { return queue == "" || name == queue }
	out.Value, out.Missing = f.recorder.TypeReport(time.Now(), q, wanted), missingNodes
	out.Value.Queues = slices.Sorted(slices.Values(f.recorder.TypeQueues(q.Namespace, q.Type, wanted)))
	return out
}

package query

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/task"
)

// Each node counts what happens in the shards while it leads them, and keeps it, so that all nodes together have seen everything, whichever
// led when. Only what a node that is away has seen is missing, and the answers say so.

// ratesTime is how long a list of queues waits for the rates of a node.
const ratesTime = 500 * time.Millisecond

type statsArgs struct {
	Queue  stats.Queue
	Window stats.Window
	Names  []string
}

type statsAnswer struct {
	Report stats.Report
	Late   []stats.LateTick
}

// StatusBroker counts the tasks of the shards that this node leads.
type StatusBroker interface {
	NamespaceStatus(ctx context.Context, ns string, age time.Duration) (broker.NamespaceStatus, error)
	QueueCounts(ctx context.Context, q broker.CountsQuery, age time.Duration) ([]broker.QueueCount, error)
}

// Stats asks all nodes what has happened, and what there is.
type Stats struct {
	shards     func() []uint32
	report     forward.Caller[statsArgs, statsAnswer]
	briefs     forward.Caller[statsArgs, []stats.Brief]
	trends     forward.Caller[statsArgs, []stats.Trend]
	typeCounts forward.Caller[typesArgs, stats.TypeCounts]
	typeBriefs forward.Caller[typesArgs, []stats.TypeBrief]
	typeReport forward.Caller[typeArgs, typeAnswer]
	namespace  forward.Caller[string, broker.NamespaceStatus]
	counts     forward.Caller[broker.CountsQuery, []broker.QueueCount]
}

// NewStats returns the statistics of all nodes. recorder has those of this one.
func NewStats(f *forward.Forwarder, b StatusBroker, recorder *stats.Recorder) *Stats {
	s := &Stats{
		shards: f.Shards,
		namespace: forward.RegisterIdempotent(f, "namespace_status", func(ctx context.Context, ns string) (broker.NamespaceStatus, error) {
			return b.NamespaceStatus(ctx, ns, statusAge)
		}),
		counts: forward.RegisterIdempotent(f, "queue-counts", func(ctx context.Context, q broker.CountsQuery) ([]broker.QueueCount, error) {
			return b.QueueCounts(ctx, q, statusAge)
		}),
	}
	s.report = forward.RegisterIdempotent(f, "stats", func(_ context.Context, a statsArgs) (out statsAnswer, err error) {
		now := time.Now()
		out.Report = recorder.Report(now, a.Queue, a.Window)
		if a.Queue.Name == "" {
			out.Late = recorder.Late(now, a.Queue.Namespace)
		}
		return out, nil
	})
	s.briefs = forward.RegisterIdempotent(f, "stats-briefs", func(_ context.Context, a statsArgs) ([]stats.Brief, error) {
		return recorder.Briefs(time.Now(), a.Queue.Namespace, a.Names), nil
	})
	s.trends = forward.RegisterIdempotent(f, "stats-trends", func(_ context.Context, a statsArgs) ([]stats.Trend, error) {
		return recorder.Trends(time.Now(), a.Queue.Namespace, a.Names, a.Window), nil
	})
	s.typeCounts = forward.RegisterIdempotent(f, "type-counts", func(ctx context.Context, a typesArgs) (stats.TypeCounts, error) {
		sees := wanted(ctx, a.Queue)
		return recorder.TypeCounts(time.Now(), a.Namespace, a.Window, func(queue, typ string) bool {
			return sees(queue) && (a.Pattern == "" || task.Matches(a.Pattern, typ))
		}), nil
	})
	s.typeBriefs = forward.RegisterIdempotent(f, "type-briefs", func(ctx context.Context, a typesArgs) ([]stats.TypeBrief, error) {
		return recorder.TypeBriefs(time.Now(), a.Namespace, a.Window, a.Names, wanted(ctx, a.Queue)), nil
	})
	s.typeReport = forward.RegisterIdempotent(f, "type-stats", func(ctx context.Context, a typeArgs) (out typeAnswer, err error) {
		out.Report = recorder.TypeReport(time.Now(), a.Query, wanted(ctx, a.Queue))
		out.Queues = recorder.TypeQueues(a.Query.Namespace, a.Query.Type, wanted(ctx, ""))
		return out, nil
	})
	return s
}

// nodeTime bounds the wait for a node if the answer is useful without it.
const nodeTime = 2 * time.Second

// statusAge is how old the answer to a question about all queues may be.
const statusAge = 2 * time.Second

// Stats reports what happened to a queue, or, if it has no name, to a namespace as a whole, and which schedules were late. missing are the
// nodes that did not answer.
func (s *Stats) Stats(ctx context.Context, q stats.Queue, w stats.Window) (sum stats.Report, late []stats.LateTick, missing []string) {
	answers, missing := s.report.OnAllNodes(ctx, nodeTime, statsArgs{Queue: q, Window: w})
	for _, a := range answers {
		sum.Add(a.Report)
		late = append(late, a.Late...)
	}
	return sum, late, missing
}

// Briefs reports what happened to some queues lately, in their order.
func (s *Stats) Briefs(ctx context.Context, ns string, names []string) []stats.Brief {
	answers, _ := s.briefs.OnAllNodes(ctx, ratesTime, statsArgs{Queue: stats.Queue{Namespace: ns}, Names: names})
	out := make([]stats.Brief, len(names))
	for _, some := range answers {
		for i := range some[:min(len(some), len(out))] {
			out[i].Add(&some[i])
		}
	}
	return out
}

// Trends returns the trends of some queues in a window, in their order.
func (s *Stats) Trends(ctx context.Context, ns string, names []string, w stats.Window) []stats.Trend {
	answers, _ := s.trends.OnAllNodes(ctx, ratesTime, statsArgs{Queue: stats.Queue{Namespace: ns}, Names: names, Window: w})
	out := make([]stats.Trend, len(names))
	for _, some := range answers {
		for i := range some[:min(len(some), len(out))] {
			out[i].Add(some[i])
		}
	}
	return out
}

// NamespaceStatus returns the state of the queues of a namespace, over all shards whose leaders answer in time. Missing are the nodes that do
// not, and the shards without such a leader.
func (s *Stats) NamespaceStatus(ctx context.Context, ns string) (sum broker.NamespaceStatus, missing []string) {
	answers, missing := s.namespace.OnAllNodes(ctx, nodeTime, ns)
	for i := range answers {
		sum.Add(&answers[i])
	}
	for _, shard := range s.shards() {
		if !slices.Contains(sum.Shards, shard) {
			missing = append(missing, fmt.Sprintf("shard %d", shard))
		}
	}
	return sum, missing
}

// QueueCounts counts tasks of queues over all shards with leaders, as far as their nodes answer in time.
func (s *Stats) QueueCounts(ctx context.Context, q broker.CountsQuery) []broker.QueueCount {
	answers, _ := s.counts.OnAllNodes(ctx, nodeTime, q)
	return broker.SumCounts(answers...)
}

// typesArgs asks what happened to types. The scope of the call limits the queues.
type typesArgs struct {
	Namespace, Queue string // "": all queues
	Pattern          string
	Window           stats.Window
	Names            []string
}

// wanted reports whether a queue is asked for and the call may see it.
func wanted(ctx context.Context, queue string) func(string) bool {
	scope := task.ScopeOf(ctx)
	return func(name string) bool { return (queue == "" || name == queue) && scope.Sees(name) }
}

type typeArgs struct {
	Query stats.TypeQuery
	Queue string // "": all queues
}

type typeAnswer struct {
	Report stats.TypeReport
	Queues []string // all that have had its tasks
}

// TypeCounts returns how much happened to the types of a namespace that match a pattern, in one queue or in all that the call may see.
func (s *Stats) TypeCounts(ctx context.Context, ns, queue, pattern string, w stats.Window) (sum stats.TypeCounts, missing []string) {
	answers, missing := s.typeCounts.OnAllNodes(ctx, nodeTime, typesArgs{Namespace: ns, Queue: queue, Pattern: pattern, Window: w})
	for _, a := range answers {
		sum.Add(a)
	}
	return sum, missing
}

// TypeBriefs returns the summaries of some types, in their order.
func (s *Stats) TypeBriefs(ctx context.Context, ns, queue string, types []string, w stats.Window) []stats.TypeBrief {
	answers, _ := s.typeBriefs.OnAllNodes(ctx, nodeTime, typesArgs{Namespace: ns, Queue: queue, Names: types, Window: w})
	out := make([]stats.TypeBrief, len(types))
	for _, some := range answers {
		for i := range some[:min(len(some), len(out))] {
			out[i].Add(&some[i])
		}
	}
	return out
}

// TypeStats reports on one type, in one queue or in all that the call may see, and which queues have had its tasks.
func (s *Stats) TypeStats(ctx context.Context, q stats.TypeQuery, queue string) (sum stats.TypeReport, queues, missing []string) {
	answers, missing := s.typeReport.OnAllNodes(ctx, nodeTime, typeArgs{q, queue})
	for _, a := range answers {
		sum.Add(a.Report)
		queues = append(queues, a.Queues...)
	}
	slices.Sort(queues)
	return sum, slices.Compact(queues), missing
}

package query

import (
	"context"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Each node counts what happens in the shards while it leads them, and keeps it, so that all nodes together have seen everything, whichever
// led when. Only what a node that is away has seen is missing, and the answers say so.
//
// The tasks that there are, on the other hand, are counted by shard: two nodes may report the same shard when it has a new leader.

// ratesTime is how long a list of queues waits for the rates of a node.
const ratesTime = 500 * time.Millisecond

type statsArgs struct {
	Queue  stats.Queue
	Window stats.Window
	Names  []string
}

// StatusBroker counts the tasks of each shard that this node leads.
type StatusBroker interface {
	NamespaceStatus(ctx context.Context, ns string, age time.Duration) ([]verb.OfShard[broker.NamespaceStatus], error)
	QueueCounts(ctx context.Context, q broker.CountsQuery, age time.Duration) ([]verb.OfShard[[]broker.QueueCount], error)
}

// Stats asks all nodes what has happened, and what there is.
type Stats struct {
	shards     func() []uint32
	report     forward.Caller[statsArgs, stats.Report]
	briefs     forward.Caller[statsArgs, []stats.Brief]
	trends     forward.Caller[statsArgs, []stats.Trend]
	typeCounts forward.Caller[typesArgs, stats.TypeCounts]
	typeBriefs forward.Caller[typesArgs, []stats.TypeBrief]
	typeReport forward.Caller[typeArgs, stats.TypeReport]
	namespace  forward.Caller[string, []verb.OfShard[broker.NamespaceStatus]]
	counts     forward.Caller[broker.CountsQuery, []verb.OfShard[[]broker.QueueCount]]
}

// NewStats returns the statistics of all nodes. recorder has those of this one.
func NewStats(f *forward.Forwarder, b StatusBroker, recorder *stats.Recorder) *Stats {
	s := &Stats{
		shards: f.Shards,
		namespace: forward.RegisterIdempotent(f, "namespace_status", func(ctx context.Context, ns string) ([]verb.OfShard[broker.NamespaceStatus], error) {
			return b.NamespaceStatus(ctx, ns, statusAge)
		}),
		counts: forward.RegisterIdempotent(f, "queue-counts", func(ctx context.Context, q broker.CountsQuery) ([]verb.OfShard[[]broker.QueueCount], error) {
			return b.QueueCounts(ctx, q, statusAge)
		}),
	}
	s.report = forward.RegisterIdempotent(f, "stats", func(_ context.Context, a statsArgs) (out stats.Report, err error) {
		now := time.Now()
		out = recorder.Report(now, a.Queue, a.Window)
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
	s.typeReport = forward.RegisterIdempotent(f, "type-stats", func(ctx context.Context, a typeArgs) (out stats.TypeReport, err error) {
		out = recorder.TypeReport(time.Now(), a.Query, wanted(ctx, a.Queue))
		out.Queues = recorder.TypeQueues(a.Query.Namespace, a.Query.Type, wanted(ctx, ""))
		return out, nil
	})
	return s
}

// statusAge is how old the answer to a question about all queues may be.
const statusAge = 2 * time.Second

// Stats reports what happened to a queue, or, if it has no name, to a namespace as a whole.
func (s *Stats) Stats(ctx context.Context, q stats.Queue, w stats.Window) (sum verb.Partial[stats.Report]) {
	all := s.report.OnAllNodes(ctx, verb.PartTime, statsArgs{Queue: q, Window: w})
	for _, a := range all.Value {
		sum.Value.Add(a)
	}
	sum.Missing = all.Missing
	return sum
}

// Briefs reports what happened to some queues lately, in their order.
func (s *Stats) Briefs(ctx context.Context, ns string, names []string) verb.Partial[[]stats.Brief] {
	all := s.briefs.OnAllNodes(ctx, ratesTime, statsArgs{Queue: stats.Queue{Namespace: ns}, Names: names})
	return addUp(all, len(names), func(to, more *stats.Brief) { to.Add(more) })
}

// Trends returns the trends of some queues in a window, in their order.
func (s *Stats) Trends(ctx context.Context, ns string, names []string, w stats.Window) verb.Partial[[]stats.Trend] {
	all := s.trends.OnAllNodes(ctx, ratesTime, statsArgs{Queue: stats.Queue{Namespace: ns}, Names: names, Window: w})
	return addUp(all, len(names), func(to, more *stats.Trend) { to.Add(*more) })
}

// addUp adds up what nodes have answered about the same n things, in their order.
func addUp[T any](all verb.Partial[[][]T], n int, add func(to, more *T)) verb.Partial[[]T] {
	out := make([]T, n)
	for _, some := range all.Value {
		for i := range some[:min(len(some), n)] {
			add(&out[i], &some[i])
		}
	}
	return verb.Partial[[]T]{Value: out, Missing: all.Missing}
}

// byShard returns what each shard has reported, and adds the shards without a report to what is missing. Of several reports on a shard, that of
// the last leader counts: an earlier one may have answered before it knew, or before the new one led.
func byShard[T any](all verb.Partial[[][]verb.OfShard[T]], shards []uint32) (out verb.Partial[[]T]) {
	last := map[uint32]verb.OfShard[T]{}
	for _, of := range slices.Concat(all.Value...) {
		if before, known := last[of.Shard]; !known || before.Term < of.Term {
			last[of.Shard] = of
		}
	}
	out.Missing = slices.Clone(all.Missing)
	for _, shard := range shards {
		if of, known := last[shard]; known {
			out.Value = append(out.Value, of.Value)
		} else {
			out.Missing = append(out.Missing, verb.Missing{Shard: shard, Why: "did not answer in time"})
		}
	}
	return out
}

// NamespaceStatus returns the state of the queues of a namespace, over all shards whose leaders answer in time.
func (s *Stats) NamespaceStatus(ctx context.Context, ns string) (sum verb.Partial[broker.NamespaceStatus]) {
	all := byShard(s.namespace.OnAllNodes(ctx, verb.PartTime, ns), s.shards())
	for i := range all.Value {
		sum.Value.Add(&all.Value[i])
	}
	sum.Value.Idle, sum.Missing = broker.Unserved(sum.Value.Idle), all.Missing
	return sum
}

// QueueCounts counts tasks of queues over all shards whose leaders answer in time.
func (s *Stats) QueueCounts(ctx context.Context, q broker.CountsQuery) verb.Partial[[]broker.QueueCount] {
	all := byShard(s.counts.OnAllNodes(ctx, verb.PartTime, q), s.shards())
	return verb.Partial[[]broker.QueueCount]{Value: broker.Unserved(broker.SumCounts(all.Value...)), Missing: all.Missing}
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

// TypeCounts returns how much happened to the types of a namespace that match a pattern, in one queue or in all that the call may see.
func (s *Stats) TypeCounts(ctx context.Context, ns, queue, pattern string, w stats.Window) (sum verb.Partial[stats.TypeCounts]) {
	all := s.typeCounts.OnAllNodes(ctx, verb.PartTime, typesArgs{Namespace: ns, Queue: queue, Pattern: pattern, Window: w})
	for _, a := range all.Value {
		sum.Value.Add(a)
	}
	sum.Missing = all.Missing
	return sum
}

// TypeBriefs returns the summaries of some types, in their order.
func (s *Stats) TypeBriefs(ctx context.Context, ns, queue string, types []string, w stats.Window) verb.Partial[[]stats.TypeBrief] {
	all := s.typeBriefs.OnAllNodes(ctx, verb.PartTime, typesArgs{Namespace: ns, Queue: queue, Names: types, Window: w})
	return addUp(all, len(types), func(to, more *stats.TypeBrief) { to.Add(more) })
}

// TypeStats reports on one type, in one queue or in all that the call may see.
func (s *Stats) TypeStats(ctx context.Context, q stats.TypeQuery, queue string) (sum verb.Partial[stats.TypeReport]) {
	all := s.typeReport.OnAllNodes(ctx, verb.PartTime, typeArgs{q, queue})
	for _, a := range all.Value {
		sum.Value.Add(a)
	}
	sum.Missing = all.Missing
	return sum
}

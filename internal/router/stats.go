package router

import (
	"context"
	"slices"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/verb"
)

// Each node counts what happens in the shards while it leads them, and keeps it, so that all nodes together have seen everything, whichever
// led when. Only what a node that is away has seen is missing, and the answers say so.
//
// The tasks that there are, on the other hand, are counted by shard: two nodes may report the same shard when it has a new leader.

// Stats asks all nodes what has happened, and what there is.
type Stats struct{ forward *forward.Forwarder }

// summed returns what all nodes together have answered. A call of each node does not fail.
func summed[Req, T any](ctx context.Context, by verb.Runner, v *verb.Verb[Req, verb.Sum[T]], q Req) verb.Partial[T] {
	sum, _ := v.Call(ctx, by, q)
	return sum.Partial()
}

// Stats reports what happened to a queue, or, if it has no name, to a namespace as a whole.
func (s *Stats) Stats(ctx context.Context, q stats.Queue, w stats.Window) verb.Partial[stats.Report] {
	return summed(ctx, s.forward, stats.ReadReport, stats.QueueReading{Queue: q, Window: w})
}

// Briefs reports what happened to some queues lately, in their order.
func (s *Stats) Briefs(ctx context.Context, ns string, names []string) verb.Partial[[]stats.Brief] {
	return summed(ctx, s.forward, stats.ReadBriefs, stats.QueuesReading{Namespace: ns, Names: names})
}

// Trends returns the trends of some queues in a window, in their order.
func (s *Stats) Trends(ctx context.Context, ns string, names []string, w stats.Window) verb.Partial[[]stats.Trend] {
	return summed(ctx, s.forward, stats.ReadTrends, stats.QueuesReading{Namespace: ns, Names: names, Window: w})
}

// byShard returns what each shard has reported, and adds the shards without a report to what is missing. Of several
// reports on a shard, that of the last leader counts: an earlier one may have answered before it knew, or before the
// new one led.
func byShard[T any](all verb.Partial[[]verb.OfShard[T]], shards []uint32) (out verb.Partial[[]T]) {
	last := map[uint32]verb.OfShard[T]{}
	for _, of := range all.Value {
		if before, known := last[of.Shard]; !known || before.Term < of.Term {
			last[of.Shard] = of
		}
	}
	out.Missing = slices.Clone(all.Missing)
	for _, shard := range shards {
		if of, known := last[shard]; known {
			out.Value = append(out.Value, of.Value)
		} else {
			out.Missing = append(out.Missing, verb.Missing{Shard: shard, Why: verb.WhyLate})
		}
	}
	return out
}

// NamespaceStatus returns the state of the queues of a namespace, over all shards whose leaders answer in time.
func (s *Stats) NamespaceStatus(ctx context.Context, ns string) (sum verb.Partial[broker.NamespaceStatus]) {
	all := byShard(summed(ctx, s.forward, ReadStatus, StatusOf{Namespace: ns}), s.forward.Shards())
	for i := range all.Value {
		sum.Value.Add(&all.Value[i])
	}
	sum.Value.Idle, sum.Missing = broker.Unserved(sum.Value.Idle), all.Missing
	return sum
}

// QueueCounts counts tasks of queues over all shards whose leaders answer in time.
func (s *Stats) QueueCounts(ctx context.Context, q broker.CountsQuery) verb.Partial[[]broker.QueueCount] {
	all := byShard(summed(ctx, s.forward, CountQueues, q), s.forward.Shards())
	return verb.Partial[[]broker.QueueCount]{Value: broker.Unserved(broker.SumCounts(all.Value...)), Missing: all.Missing}
}

// TypeCounts returns how much happened to the types of a namespace that match a pattern, in one queue or in all that the call may see.
func (s *Stats) TypeCounts(ctx context.Context, ns, queue, pattern string, w stats.Window) verb.Partial[stats.TypeCounts] {
	return summed(ctx, s.forward, stats.ReadTypeCounts, stats.TypesReading{Namespace: ns, Queue: queue, Pattern: pattern, Window: w})
}

// TypeBriefs returns the summaries of some types, in their order.
func (s *Stats) TypeBriefs(ctx context.Context, ns, queue string, types []string, w stats.Window) verb.Partial[[]stats.TypeBrief] {
	return summed(ctx, s.forward, stats.ReadTypeBriefs, stats.TypesReading{Namespace: ns, Queue: queue, Names: types, Window: w})
}

// TypeStats reports on one type, in one queue or in all that the call may see.
func (s *Stats) TypeStats(ctx context.Context, q stats.TypeQuery, queue string) verb.Partial[stats.TypeReport] {
	return summed(ctx, s.forward, stats.ReadType, stats.TypeReading{Query: q, Queue: queue})
}

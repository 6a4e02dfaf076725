package router

import (
	"context"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
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

var statsReport = serve(&method[statsArgs, statsAnswer]{Rule: verb.Rule{Name: "stats", Idempotent: true}, run: func(_ context.Context, r *Router, a statsArgs) (out statsAnswer, err error) {
	now := time.Now()
	out.Report = r.cfg.Stats.Report(now, a.Queue, a.Window)
	if a.Queue.Name == "" {
		out.Late = r.cfg.Stats.Late(now, a.Queue.Namespace)
	}
	return out, nil
}})

var statsBriefs = serve(&method[statsArgs, []stats.Brief]{Rule: verb.Rule{Name: "stats-briefs", Idempotent: true}, run: func(_ context.Context, r *Router, a statsArgs) ([]stats.Brief, error) {
	return r.cfg.Stats.Briefs(time.Now(), a.Queue.Namespace, a.Names), nil
}})

var statsTrends = serve(&method[statsArgs, []stats.Trend]{Rule: verb.Rule{Name: "stats-trends", Idempotent: true}, run: func(_ context.Context, r *Router, a statsArgs) ([]stats.Trend, error) {
	return r.cfg.Stats.Trends(time.Now(), a.Queue.Namespace, a.Names, a.Window), nil
}})

var namespaceStatus = serve(&method[string, broker.NamespaceStatus]{Rule: verb.Rule{Name: "namespace_status", Idempotent: true}, run: func(ctx context.Context, r *Router, ns string) (broker.NamespaceStatus, error) {
	return r.cfg.Broker.NamespaceStatus(ctx, ns, statusAge)
}})

var queueCounts = serve(&method[broker.CountsQuery, []broker.QueueCount]{Rule: verb.Rule{Name: "queue-counts", Idempotent: true}, run: func(ctx context.Context, r *Router, q broker.CountsQuery) ([]broker.QueueCount, error) {
	return r.cfg.Broker.QueueCounts(ctx, q, statusAge)
}})

// statusAge is how old the answer to a question about all queues may be.
const statusAge = 2 * time.Second

// Stats reports what happened to a queue, or, if it has no name, to a namespace as a whole, and which schedules were late. missing are the
// nodes that did not answer.
func (r *Router) Stats(ctx context.Context, q stats.Queue, w stats.Window) (sum stats.Report, late []stats.LateTick, missing []string) {
	answers, missing := eachNode(ctx, r, statsReport, nodeTime, statsArgs{Queue: q, Window: w})
	for i, a := range answers {
		if i == 0 {
			sum = a.Report
		} else {
			sum.Add(a.Report)
		}
		late = append(late, a.Late...)
	}
	return sum, late, missing
}

// Briefs reports what happened to some queues lately, in their order.
func (r *Router) Briefs(ctx context.Context, ns string, names []string) []stats.Brief {
	answers, _ := eachNode(ctx, r, statsBriefs, ratesTime, statsArgs{Queue: stats.Queue{Namespace: ns}, Names: names})
	out := make([]stats.Brief, len(names))
	for _, some := range answers {
		for i := range some[:min(len(some), len(out))] {
			out[i].Add(&some[i])
		}
	}
	return out
}

// Trends returns the trends of some queues in a window, in their order.
func (r *Router) Trends(ctx context.Context, ns string, names []string, w stats.Window) []stats.Trend {
	answers, _ := eachNode(ctx, r, statsTrends, ratesTime, statsArgs{Queue: stats.Queue{Namespace: ns}, Names: names, Window: w})
	out := make([]stats.Trend, len(names))
	for _, some := range answers {
		for i := range some[:min(len(some), len(out))] {
			out[i].Add(some[i])
		}
	}
	return out
}

// NamespaceStatus returns the state of the queues of a namespace, over all shards with leaders.
func (r *Router) NamespaceStatus(ctx context.Context, ns string) (sum broker.NamespaceStatus, missing []string) {
	answers, missing := eachNode(ctx, r, namespaceStatus, nodeTime, ns)
	for i := range answers {
		sum.Add(&answers[i])
	}
	return sum, missing
}

// QueueCounts counts tasks of queues over all shards with leaders, as far as their nodes answer in time.
func (r *Router) QueueCounts(ctx context.Context, q broker.CountsQuery) []broker.QueueCount {
	answers, _ := eachNode(ctx, r, queueCounts, nodeTime, q)
	if len(answers) == 1 {
		return answers[0]
	}
	var sum []broker.QueueCount
	at := map[string]int{}
	for _, some := range answers {
		for _, c := range some {
			if i, known := at[c.Queue]; known {
				sum[i].N += c.N
				continue
			}
			at[c.Queue] = len(sum)
			sum = append(sum, c)
		}
	}
	return sum
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

var typeCounts = serve(&method[typesArgs, stats.TypeCounts]{Rule: verb.Rule{Name: "type-counts", Idempotent: true}, run: func(ctx context.Context, r *Router, a typesArgs) (stats.TypeCounts, error) {
	sees := wanted(ctx, a.Queue)
	return r.cfg.Stats.TypeCounts(time.Now(), a.Namespace, a.Window, func(queue, typ string) bool {
		return sees(queue) && (a.Pattern == "" || task.Matches(a.Pattern, typ))
	}), nil
}})

var typeBriefs = serve(&method[typesArgs, []stats.TypeBrief]{Rule: verb.Rule{Name: "type-briefs", Idempotent: true}, run: func(ctx context.Context, r *Router, a typesArgs) ([]stats.TypeBrief, error) {
	return r.cfg.Stats.TypeBriefs(time.Now(), a.Namespace, a.Window, a.Names, wanted(ctx, a.Queue)), nil
}})

type typeArgs struct {
	Query stats.TypeQuery
	Queue string // "": all queues
}

type typeAnswer struct {
	Report stats.TypeReport
	Queues []string // all that have had its tasks
}

var typeReport = serve(&method[typeArgs, typeAnswer]{Rule: verb.Rule{Name: "type-stats", Idempotent: true}, run: func(ctx context.Context, r *Router, a typeArgs) (out typeAnswer, err error) {
	out.Report = r.cfg.Stats.TypeReport(time.Now(), a.Query, wanted(ctx, a.Queue))
	out.Queues = r.cfg.Stats.TypeQueues(a.Query.Namespace, a.Query.Type, wanted(ctx, ""))
	return out, nil
}})

// TypeCounts returns how much happened to the types of a namespace that match a pattern, in one queue or in all that the call may see.
func (r *Router) TypeCounts(ctx context.Context, ns, queue, pattern string, w stats.Window) (sum stats.TypeCounts, missing []string) {
	answers, missing := eachNode(ctx, r, typeCounts, nodeTime, typesArgs{Namespace: ns, Queue: queue, Pattern: pattern, Window: w})
	for _, a := range answers {
		sum.Add(a)
	}
	return sum, missing
}

// TypeBriefs returns the summaries of some types, in their order.
func (r *Router) TypeBriefs(ctx context.Context, ns, queue string, types []string, w stats.Window) []stats.TypeBrief {
	answers, _ := eachNode(ctx, r, typeBriefs, nodeTime, typesArgs{Namespace: ns, Queue: queue, Names: types, Window: w})
	out := make([]stats.TypeBrief, len(types))
	for _, some := range answers {
		for i := range some[:min(len(some), len(out))] {
			out[i].Add(&some[i])
		}
	}
	return out
}

// TypeStats reports on one type, in one queue or in all that the call may see, and which queues have had its tasks.
func (r *Router) TypeStats(ctx context.Context, q stats.TypeQuery, queue string) (sum stats.TypeReport, queues, missing []string) {
	answers, missing := eachNode(ctx, r, typeReport, nodeTime, typeArgs{q, queue})
	for i, a := range answers {
		if i == 0 {
			sum = a.Report
		} else {
			sum.Add(a.Report)
		}
		queues = append(queues, a.Queues...)
	}
	slices.Sort(queues)
	return sum, slices.Compact(queues), missing
}

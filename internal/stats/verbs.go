package stats

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Verbs are the calls on what nodes have counted. All nodes together have seen everything, whichever led when.
var Verbs verb.Table[*Recorder]

// briefTime is how long a list of queues waits for the rates of a node.
const briefTime = 500 * time.Millisecond

// QueueReading asks what happened to a queue, or, without a name, to a namespace as a whole.
type QueueReading struct {
	Queue  Queue
	Window Window
}

// QueuesReading asks what happened to some queues of a namespace.
type QueuesReading struct {
	Namespace string
	Names     []string
	Window    Window
}

// TypesReading asks what happened to types, in one queue or, for "", in all that the call may see. They are named, or match a pattern.
type TypesReading struct {
	Namespace, Queue string
	Pattern          string
	Names            []string
	Window           Window
}

// TypeReading asks what happened to a type, in one queue or, for "", in all that the call may see.
type TypeReading struct {
	Query TypeQuery
	Queue string
}

// wanted reports whether a queue is asked for and the call may see it.
func wanted(ctx context.Context, queue string) func(string) bool {
	scope := task.ScopeOf(ctx)
	return func(name string) bool { return (queue == "" || name == queue) && scope.Sees(name) }
}

var (
	ReadReport = verb.New(&Verbs, verb.Rule{Name: "stats", Where: verb.EachNode, Idempotent: true},
		func(r *Recorder, _ context.Context, q QueueReading) (out verb.Sum[Report], err error) {
			now := time.Now()
			out.Value = r.Report(now, q.Queue, q.Window)
			if q.Queue.Name == "" {
				out.Value.Late = r.Late(now, q.Queue.Namespace)
			}
			return out, nil
		}).Merged(func(_ *QueueReading, parts []verb.Sum[Report]) (sum verb.Sum[Report], _ error) {
		for _, p := range parts {
			sum.Value.Add(p.Value)
		}
		return sum, nil
	})
	ReadBriefs = verb.New(&Verbs, verb.Rule{Name: "stats-briefs", Where: verb.EachNode, Idempotent: true, Patience: briefTime},
		func(r *Recorder, _ context.Context, q QueuesReading) (out verb.Sum[[]Brief], err error) {
			out.Value = r.Briefs(time.Now(), q.Namespace, q.Names)
			return out, nil
		}).Merged(func(q *QueuesReading, parts []verb.Sum[[]Brief]) (verb.Sum[[]Brief], error) {
		return addUp(parts, len(q.Names), (*Brief).Add), nil
	})
	ReadTrends = verb.New(&Verbs, verb.Rule{Name: "stats-trends", Where: verb.EachNode, Idempotent: true, Patience: briefTime},
		func(r *Recorder, _ context.Context, q QueuesReading) (out verb.Sum[[]Trend], err error) {
			out.Value = r.Trends(time.Now(), q.Namespace, q.Names, q.Window)
			return out, nil
		}).Merged(func(q *QueuesReading, parts []verb.Sum[[]Trend]) (verb.Sum[[]Trend], error) {
		return addUp(parts, len(q.Names), func(to, more *Trend) { to.Add(*more) }), nil
	})
	ReadTypeCounts = verb.New(&Verbs, verb.Rule{Name: "type-counts", Where: verb.EachNode, Idempotent: true},
		func(r *Recorder, ctx context.Context, q TypesReading) (out verb.Sum[TypeCounts], err error) {
			sees := wanted(ctx, q.Queue)
			out.Value = r.TypeCounts(time.Now(), q.Namespace, q.Window, func(queue, typ string) bool {
				return sees(queue) && (q.Pattern == "" || task.Matches(q.Pattern, typ))
			})
			return out, nil
		}).Merged(func(_ *TypesReading, parts []verb.Sum[TypeCounts]) (sum verb.Sum[TypeCounts], _ error) {
		for _, p := range parts {
			sum.Value.Add(p.Value)
		}
		return sum, nil
	})
	ReadTypeBriefs = verb.New(&Verbs, verb.Rule{Name: "type-briefs", Where: verb.EachNode, Idempotent: true},
		func(r *Recorder, ctx context.Context, q TypesReading) (out verb.Sum[[]TypeBrief], err error) {
			out.Value = r.TypeBriefs(time.Now(), q.Namespace, q.Window, q.Names, wanted(ctx, q.Queue))
			return out, nil
		}).Merged(func(q *TypesReading, parts []verb.Sum[[]TypeBrief]) (verb.Sum[[]TypeBrief], error) {
		return addUp(parts, len(q.Names), (*TypeBrief).Add), nil
	})
	ReadType = verb.New(&Verbs, verb.Rule{Name: "type-stats", Where: verb.EachNode, Idempotent: true},
		func(r *Recorder, ctx context.Context, q TypeReading) (out verb.Sum[TypeReport], err error) {
			out.Value = r.TypeReport(time.Now(), q.Query, wanted(ctx, q.Queue))
			out.Value.Queues = r.TypeQueues(q.Query.Namespace, q.Query.Type, wanted(ctx, ""))
			return out, nil
		}).Merged(func(_ *TypeReading, parts []verb.Sum[TypeReport]) (sum verb.Sum[TypeReport], _ error) {
		for _, p := range parts {
			sum.Value.Add(p.Value)
		}
		return sum, nil
	})
)

// addUp adds up what nodes have answered about the same n things, in their order.
func addUp[T any](parts []verb.Sum[[]T], n int, add func(to, more *T)) (sum verb.Sum[[]T]) {
	sum.Value = make([]T, n)
	for _, p := range parts {
		for i := range p.Value[:min(len(p.Value), n)] {
			add(&sum.Value[i], &p.Value[i])
		}
	}
	return sum
}

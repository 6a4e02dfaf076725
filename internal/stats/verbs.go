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
	ReadReport = verb.NewSum(&Verbs, verb.Rule{Name: "stats"}, func(r *Recorder, _ context.Context, q QueueReading) (Report, error) {
		now := time.Now()
		out := r.Report(now, q.Queue, q.Window)
		if q.Queue.Name == "" {
			out.Late = r.Late(now, q.Queue.Namespace)
		}
		return out, nil
	}, sumOf[QueueReading]((*Report).Add))
	ReadBriefs = verb.NewSum(&Verbs, verb.Rule{Name: "stats-briefs", Patience: briefTime},
		func(r *Recorder, _ context.Context, q QueuesReading) ([]Brief, error) {
			return r.Briefs(time.Now(), q.Namespace, q.Names), nil
		}, func(q *QueuesReading, lists [][]Brief) []Brief { return sumEach(lists, len(q.Names), (*Brief).Add) })
	ReadTrends = verb.NewSum(&Verbs, verb.Rule{Name: "stats-trends", Patience: briefTime},
		func(r *Recorder, _ context.Context, q QueuesReading) ([]Trend, error) {
			return r.Trends(time.Now(), q.Namespace, q.Names, q.Window), nil
		}, func(q *QueuesReading, lists [][]Trend) []Trend {
			return sumEach(lists, len(q.Names), func(to, more *Trend) { to.Add(*more) })
		})
	ReadTypeCounts = verb.NewSum(&Verbs, verb.Rule{Name: "type-counts"},
		func(r *Recorder, ctx context.Context, q TypesReading) (TypeCounts, error) {
			sees := wanted(ctx, q.Queue)
			return r.TypeCounts(time.Now(), q.Namespace, q.Window, func(queue, typ string) bool {
				return sees(queue) && (q.Pattern == "" || task.Matches(q.Pattern, typ))
			}), nil
		}, sumOf[TypesReading]((*TypeCounts).Add))
	ReadTypeBriefs = verb.NewSum(&Verbs, verb.Rule{Name: "type-briefs"},
		func(r *Recorder, ctx context.Context, q TypesReading) ([]TypeBrief, error) {
			return r.TypeBriefs(time.Now(), q.Namespace, q.Window, q.Names, wanted(ctx, q.Queue)), nil
		}, func(q *TypesReading, lists [][]TypeBrief) []TypeBrief {
			return sumEach(lists, len(q.Names), (*TypeBrief).Add)
		})
	ReadType = verb.NewSum(&Verbs, verb.Rule{Name: "type-stats"},
		func(r *Recorder, ctx context.Context, q TypeReading) (TypeReport, error) {
			out := r.TypeReport(time.Now(), q.Query, wanted(ctx, q.Queue))
			out.Queues = r.TypeQueues(q.Query.Namespace, q.Query.Type, wanted(ctx, ""))
			return out, nil
		}, sumOf[TypeReading]((*TypeReport).Add))
)

// sumOf returns a function that adds up what nodes have answered.
func sumOf[Req, T any](add func(to *T, more T)) func(*Req, []T) T {
	return func(_ *Req, values []T) (sum T) {
		for _, v := range values {
			add(&sum, v)
		}
		return sum
	}
}

// sumEach adds up what nodes have answered about each of the same n things.
func sumEach[T any](lists [][]T, n int, add func(to, more *T)) []T {
	sums := make([]T, n)
	for _, list := range lists {
		for i := range list[:min(len(list), n)] {
			add(&sums[i], &list[i])
		}
	}
	return sums
}

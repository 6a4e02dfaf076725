package gateway

import (
	"cmp"
	"context"
	"slices"
	"strings"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/fanout"
	"github.com/pawlq/pawl/internal/gateway/statistics"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// queueList says which queues to list.
type queueList struct {
	ns      string
	pattern string
	having  string // a word of contract.QueueTraits
	most    bool
	after   string
	limit   int
	series  stats.Window
}

func queueListOf(ctx context.Context, r *pawlv1.ListQueuesRequest, l task.Limits) (q queueList, err error) {
	q = queueList{ns: callinfo.Namespace(ctx), pattern: r.GetPattern()}
	var after []byte
	if q.limit, after, err = apiproto.PageOf(r, apiproto.QueueCursor); err != nil {
		return q, err
	}
	q.after = string(after)
	if r.GetSeries() != nil {
		if q.series, err = statistics.ReadWindow("series", r.GetSeries()); err != nil {
			return q, err
		}
	}
	if q.pattern != "" {
		if err = task.CheckPattern("pattern", "queue", q.pattern, l); err != nil {
			return q, err
		}
	}
	if q.having, err = contract.WordOf("having", contract.QueueTraits, r.GetHaving()); err != nil {
		return q, err
	}
	order, err := contract.WordOf("order", contract.QueueOrders, r.GetOrder())
	if err != nil {
		return q, err
	}
	switch q.most = order == contract.QueueOrderMost; {
	case q.most && q.after != "":
		return q, task.Invalid("cursor", "a list of the largest has only one page")
	case q.most && q.having == contract.QueuePaused:
		return q, task.Invalid("order", "paused queues are listed by name")
	}
	return q, nil
}

// ListQueues returns a page of queues.
func (g *operatorService) ListQueues(ctx context.Context, r *pawlv1.ListQueuesRequest) (*pawlv1.ListQueuesResponse, error) {
	q, err := queueListOf(ctx, r, g.limits)
	if err != nil {
		return nil, err
	}
	page, next, err := g.listed(ctx, q)
	if err != nil {
		return nil, err
	}
	out := &pawlv1.ListQueuesResponse{NextCursor: apiproto.NextCursor(apiproto.QueueCursor, next)}
	states, err := g.States(ctx, page.Value...)
	if err != nil {
		return nil, err
	}
	for i, of := range states {
		out.Items, page.Missing = append(out.Items, fanout.QueueProto(page.Value[i], of)), append(page.Missing, of.Missing...)
	}
	lacking, err := g.SetLately(ctx, q.series, out.Items...)
	out.Missing = apiproto.MissingProto(verb.JoinMissing(page.Missing, lacking))
	return out, err
}

// listed returns the queues of a page, and the name after which the list continues; "": it ends.
func (g *operatorService) listed(ctx context.Context, q queueList) (page verb.Partial[[]queues.Queue], next string, err error) {
	if q.having == "" && !q.most || q.having == contract.QueuePaused {
		page.Value, err = g.cluster.Queues(ctx, q.ns, queues.Query{After: q.after, Limit: q.limit + 1, Pattern: q.pattern,
			Paused: q.having != ""})
		if len(page.Value) > q.limit {
			page.Value, next = page.Value[:q.limit], page.Value[q.limit-1].Name
		}
		return page, next, err
	}
	names, next := g.counted(ctx, q)
	page.Missing = names.Missing
	if len(names.Value) > 0 {
		page.Value, err = g.cluster.Queues(ctx, q.ns, queues.Query{Limit: len(names.Value), Names: names.Value})
	}
	return page, next, err
}

// counted returns the names of queues according to the last counts, which shards and nodes have at hand.
func (g *operatorService) counted(ctx context.Context, q queueList) (names verb.Partial[[]string], next string) {
	of := broker.CountsQuery{Namespace: q.ns, Pattern: q.pattern, State: countedState(q), NoWorker: q.having == contract.QueueNoWorker}
	all := g.Stats.QueueCounts(ctx, of)
	counts := all.Value
	if q.most {
		slices.SortStableFunc(counts, func(a, b broker.QueueCount) int { return cmp.Compare(b.N, a.N) })
	} else {
		slices.SortFunc(counts, func(a, b broker.QueueCount) int { return strings.Compare(a.Queue, b.Queue) })
		from, _ := slices.BinarySearchFunc(counts, q.after+"\x00", func(c broker.QueueCount, name string) int {
			return strings.Compare(c.Queue, name)
		})
		counts = counts[from:]
	}
	for _, c := range counts[:min(len(counts), q.limit+1)] {
		names.Value = append(names.Value, c.Queue)
	}
	if len(names.Value) > q.limit {
		if names.Value = names.Value[:q.limit]; !q.most {
			next = names.Value[q.limit-1]
		}
	}
	names.Missing = all.Missing
	return names, next
}

// countedState returns the state whose counts a list needs; 0: all tasks that are not done.
func countedState(q queueList) task.State {
	switch q.having {
	case contract.QueueDead:
		return task.Dead
	case contract.QueuePoisoned:
		return task.Poisoned
	case contract.QueueNoWorker:
		return task.Ready
	}
	return 0
}

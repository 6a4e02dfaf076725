package statistics

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// TypeStats is what the gateway needs of the nodes' statistics on types. Each call sees the queues of its scope, and may ask for
// one of them.
type TypeStats interface {
	TypeCounts(ctx context.Context, ns, queue, pattern string, w stats.Window) verb.Partial[stats.TypeCounts]
	// TypeBriefs are in the order of the types.
	TypeBriefs(ctx context.Context, ns, queue string, types []string, w stats.Window) verb.Partial[[]stats.TypeBrief]
	TypeStats(ctx context.Context, q stats.TypeQuery, queue string) verb.Partial[stats.TypeReport]
}

// Limits on lists of a type's queues, and on how far back the time of a comparison may be.
const (
	maxTypeQueues = 20
	maxAround     = 24 * time.Hour
)

// typeList says which types to list.
type typeList struct {
	window         stats.Window
	queue, pattern string
	order          string // a word of contract.TypeOrders
	after          string
	limit          int
}

func typeWindowOf(d *durationpb.Duration) (stats.Window, error) {
	if d == nil {
		return stats.Hour, nil
	}
	span, err := apiproto.SpanOf("window", d)
	if err != nil {
		return 0, err
	}
	w := stats.Window(span)
	if !w.ValidOfType() {
		return 0, task.Invalid("window", "%s is not one of 5m, 1h, 24h", humanize.DurationText(span))
	}
	return w, nil
}

func typeListOf(r *pawlv1.ListTypesRequest, l task.Limits) (q typeList, err error) {
	q = typeList{queue: r.GetQueue(), pattern: r.GetPattern()}
	if q.window, err = typeWindowOf(r.GetWindow()); err != nil {
		return q, err
	}
	if err = checkTypePattern(q.pattern, l); err != nil {
		return q, err
	}
	if q.order, err = contract.WordOf("order", contract.TypeOrders, r.GetOrder()); err != nil {
		return q, err
	}
	var after []byte
	if q.limit, after, err = apiproto.PageOf(r, apiproto.TypeCursor); err != nil {
		return q, err
	}
	if q.after = string(after); q.after != "" && q.order != "" {
		return q, task.Invalid("cursor", "a list by %q has one page", q.order)
	}
	return q, nil
}

func checkTypePattern(pattern string, l task.Limits) error {
	if strings.Count(pattern, "*") > task.MaxStars {
		return task.Invalid("pattern", "%q has more than %d stars", task.Cut(pattern, 64), task.MaxStars)
	}
	return task.CheckName("pattern", pattern, l)
}

// ListTypes returns a page of types.
func (g *Service) ListTypes(ctx context.Context, r *pawlv1.ListTypesRequest) (*pawlv1.ListTypesResponse, error) {
	q, err := typeListOf(r, g.Limits)
	if err != nil {
		return nil, err
	}
	if err := g.checkTypeQueue(ctx, q.queue); err != nil {
		return nil, err
	}
	return share(ctx, g.Sharing, fmt.Sprintf("types %#v", q), func(ctx context.Context) (*pawlv1.ListTypesResponse, error) {
		return g.types(ctx, q), nil
	})
}

func (g *Service) types(ctx context.Context, q typeList) *pawlv1.ListTypesResponse {
	ns := callinfo.Namespace(ctx)
	all := g.Source.TypeCounts(ctx, ns, q.queue, q.pattern, q.window)
	names, next := q.page(all.Value.Counts)
	out := &pawlv1.ListTypesResponse{Window: durationpb.New(time.Duration(q.window)), Missing: apiproto.MissingProto(all.Missing),
		Items: make([]*pawlv1.TypeSummary, len(names)), NextCursor: apiproto.NextCursor(apiproto.TypeCursor, next)}
	if len(names) == 0 {
		return out
	}
	briefs := g.Source.TypeBriefs(ctx, ns, q.queue, names, q.window)
	for i, b := range briefs.Value {
		out.Items[i] = summaryProto(names[i], &b, q.window, all.Value.Span)
	}
	out.Missing = apiproto.MissingProto(verb.JoinMissing(all.Missing, briefs.Missing))
	return out
}

// checkTypeQueue refuses a queue that does not exist, or that the caller may not see; "": none is asked for.
func (g *Service) checkTypeQueue(ctx context.Context, queue string) error {
	if queue == "" {
		return nil
	}
	_, err := g.Known(ctx, queue)
	return err
}

// page returns the types of a page, and the one after which the list continues; "": it ends.
func (q *typeList) page(all []stats.TypeCount) (names []string, next string) {
	if q.order == contract.TypeOrderFailing {
		all = slices.DeleteFunc(all, func(c stats.TypeCount) bool { return c.Bad == 0 })
	}
	slices.SortFunc(all, func(a, b stats.TypeCount) int {
		byName := strings.Compare(a.Type, b.Type)
		switch q.order {
		case contract.TypeOrderMost:
			return cmp.Or(cmp.Compare(b.Moved, a.Moved), byName)
		case contract.TypeOrderFailing:
			return cmp.Or(cmp.Compare(b.Bad, a.Bad), byName)
		}
		return byName
	})
	for _, c := range all {
		switch {
		case c.Type <= q.after: // no type has an empty name
		case len(names) < q.limit:
			names = append(names, c.Type)
		case q.order == "":
			return names, names[len(names)-1]
		}
	}
	return names, ""
}

func summaryProto(name string, b *stats.TypeBrief, w stats.Window, span time.Duration) *pawlv1.TypeSummary {
	p := &pawlv1.TypeSummary{Type: name, Queues: b.Queues[:min(len(b.Queues), maxTypeQueues)], Rates: ratesProto(b.Rates, span),
		FailureRate: failureRate(b.Rates), Totals: countsProto(b.Rates), Wait: latencyProto(&b.Wait), Run: latencyProto(&b.Run),
		Series: seriesOfTrend(&b.Trend, w.TypeTrendStep()), LastError: b.Last.Error, LastErrorType: b.Last.ErrorType}
	if !b.Last.At.IsZero() {
		p.LastFailedAt = timestamppb.New(b.Last.At)
	}
	return p
}

func ratesProto(r stats.Rates, span time.Duration) *pawlv1.QueueRates {
	s := max(span, time.Second).Seconds()
	return &pawlv1.QueueRates{In: float64(r.In()) / s, Out: float64(r.Out()) / s, Failed: float64(r.Bad()) / s}
}

// GetTypeStats returns the statistics of one type.
func (g *Service) GetTypeStats(ctx context.Context, r *pawlv1.GetTypeStatsRequest) (*pawlv1.GetTypeStatsResponse, error) {
	if r.GetType() == "" {
		return nil, task.Invalid("type", "is required")
	}
	if err := task.CheckName("type", r.GetType(), g.Limits); err != nil {
		return nil, err
	}
	w, err := typeWindowOf(r.GetWindow())
	if err != nil {
		return nil, err
	}
	q := stats.TypeQuery{Namespace: callinfo.Namespace(ctx), Type: r.GetType(), Window: w, Asked: time.Now()}
	if q.Around, err = aroundOf(r.GetAround(), q.Asked); err != nil {
		return nil, err
	}
	if err := g.checkTypeQueue(ctx, r.GetQueue()); err != nil {
		return nil, err
	}
	what := fmt.Sprintf("type %q %q %d %d", q.Type, r.GetQueue(), w, q.Around.UnixNano())
	return share(ctx, g.Sharing, what, func(ctx context.Context) (*pawlv1.GetTypeStatsResponse, error) {
		return g.typeStats(ctx, q, r.GetQueue()), nil
	})
}

func (g *Service) typeStats(ctx context.Context, q stats.TypeQuery, queue string) *pawlv1.GetTypeStatsResponse {
	all, w := g.Source.TypeStats(ctx, q, queue), q.Window
	report, queues := all.Value, all.Value.Queues
	p := &pawlv1.GetTypeStatsResponse{Type: q.Type, Queue: queue, Queues: queues[:min(len(queues), contract.MaxPage)],
		Stats: typeStatsProto(&report, w, all.Missing), Rates: ratesProto(report.Total(), report.Span),
		WaitHistogram: histogramProto(&report.Wait), RunHistogram: histogramProto(&report.Run)}
	for _, s := range report.Slowest {
		p.Slowest = append(p.Slowest, &pawlv1.SlowRun{TaskId: task.ID(s.Task).String(), Worker: s.Worker, RunSeconds: s.Ran.Seconds(),
			EndedAt: timestamppb.New(time.Unix(s.At, 0)), Failed: s.Failed})
	}
	if report.Before != nil { // After comes with it
		p.Comparison = &pawlv1.Comparison{Around: timestamppb.New(q.Around), Before: typePeriodProto(report.Before),
			After: typePeriodProto(report.After)}
	}
	return p
}

// aroundOf returns the time to compare around; zero: none.
func aroundOf(p *timestamppb.Timestamp, now time.Time) (time.Time, error) {
	at, err := apiproto.TimeOf("around", p)
	if at.IsZero() {
		return at, err
	}
	if age := now.Sub(at); age < 0 || age > maxAround {
		return time.Time{}, task.Invalid("around", "%s is not in the last 24 hours", at.Format(time.RFC3339))
	}
	return at, nil
}

func typeStatsProto(r *stats.TypeReport, w stats.Window, missing []verb.Missing) *pawlv1.Stats {
	first, total := r.Last-int64(len(r.Rates))+1, r.Total()
	return &pawlv1.Stats{Window: durationpb.New(time.Duration(w)), Step: durationpb.New(w.TypeStep()),
		Start:  timestamppb.New(time.Unix(first*int64(w.TypeStep()/time.Second), 0)),
		Series: seriesProto(r.Rates), Totals: countsProto(total), FailureRate: failureRate(total), Wait: latencyProto(&r.Wait),
		Run: latencyProto(&r.Run), Failing: failingProto(r.Failing), Missing: apiproto.MissingProto(missing)}
}

func histogramProto(h *stats.LogHistogram) []*pawlv1.HistogramBucket {
	first, n := h.Shown()
	buckets := make([]*pawlv1.HistogramBucket, len(n))
	for i := range n {
		buckets[i] = &pawlv1.HistogramBucket{Count: countOf(n[i])}
		if first+i < len(stats.LogBounds) {
			buckets[i].UpToSeconds = stats.LogBounds[first+i].Seconds()
		}
	}
	return buckets
}

func typePeriodProto(p *stats.Period) *pawlv1.TypePeriod {
	length := time.Duration(p.Seconds) * time.Second
	return &pawlv1.TypePeriod{Start: timestamppb.New(time.Unix(p.From, 0)), Length: durationpb.New(length),
		Rates: ratesProto(p.Rates, length), FailureRate: failureRate(p.Rates), Totals: countsProto(p.Rates), Run: latencyProto(&p.Run)}
}

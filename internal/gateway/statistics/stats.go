// Package statistics serves the figures of queues and types, what needs attention, and how many workers a queue needs, also to KEDA.
//
// It decides what needs attention, but counts nothing: it knows the nodes' figures only as package stats hands them out.
package statistics

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/fanout"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Stats is what the gateway needs of the nodes' statistics.
type Stats interface {
	Stats(ctx context.Context, q stats.Queue, w stats.Window) verb.Partial[stats.Report]
	// Briefs are in the order of the names.
	Briefs(ctx context.Context, ns string, names []string) verb.Partial[[]stats.Brief]
	// Trends too.
	Trends(ctx context.Context, ns string, names []string, w stats.Window) verb.Partial[[]stats.Trend]
	NamespaceStatus(ctx context.Context, ns string) verb.Partial[broker.NamespaceStatus]
	// QueueCounts are in no order.
	QueueCounts(ctx context.Context, q broker.CountsQuery) verb.Partial[[]broker.QueueCount]
	TypeStats
}

// Service implements StatsService.
type Service struct {
	pawlv1.UnimplementedStatsServiceServer
	fanout.Queues
	Source   Stats
	Sharing  *Sharing  // nil: each caller has its own reads
	Nodes    overviews // nil: this node is alone
	Webhooks bool      // whether there are any
	Limits   task.Limits
}

func windowOf(d *durationpb.Duration) (stats.Window, error) {
	if d == nil {
		return stats.Hour, nil
	}
	return ReadWindow("window", d)
}

// ReadWindow decodes a window of time.
func ReadWindow(field string, d *durationpb.Duration) (stats.Window, error) {
	span, err := apiproto.SpanOf(field, d)
	if err != nil {
		return 0, err
	}
	w := stats.Window(span)
	if !w.Valid() {
		return 0, task.Invalid(field, "%s is not one of 2m, 5m, 1h, 24h", humanize.DurationText(span))
	}
	return w, nil
}

// GetStats returns the statistics of all queues together.
func (g *Service) GetStats(ctx context.Context, r *pawlv1.GetStatsRequest) (*pawlv1.GetStatsResponse, error) {
	w, err := windowOf(r.GetWindow())
	if err != nil {
		return nil, err
	}
	return share(ctx, g.Sharing, fmt.Sprintf("namespace %d", w), func(ctx context.Context) (*pawlv1.GetStatsResponse, error) {
		return g.statsOfAll(ctx, w)
	})
}

func (g *Service) statsOfAll(ctx context.Context, w stats.Window) (*pawlv1.GetStatsResponse, error) {
	ns := callinfo.Namespace(ctx)
	s := situation{narrow: !callinfo.Of(ctx).Principal.InAll()}
	var happened, hour verb.Partial[stats.Report]
	var status verb.Partial[broker.NamespaceStatus]
	errs := parallel.Each(5, func(i int) error {
		switch i {
		case 0:
			happened = g.Source.Stats(ctx, stats.Queue{Namespace: ns}, w)
		case 1:
			status = g.Source.NamespaceStatus(ctx, ns)
		case 2:
			hour = g.Source.Stats(ctx, stats.Queue{Namespace: ns}, stats.Hour)
		case 3:
			if !s.narrow {
				s.overview, s.known = g.askOverview(ctx)
			}
		case 4:
			s.webhooks = g.askWebhooks(ctx, ns)
		}
		return nil
	})
	if err := parallel.FirstError(errs); err != nil {
		return nil, err
	}
	s.report, s.status, s.hour, s.missing = happened.Value, status.Value, hour.Value, verb.JoinMissing(happened.Missing, status.Missing)
	return &pawlv1.GetStatsResponse{Stats: statsProto(&s.report, w, s.missing), Queues: totalsProto(&s.status),
		Attention: s.attention(time.Now())}, nil
}

// GetQueueStats returns the statistics of one queue.
func (g *Service) GetQueueStats(ctx context.Context, r *pawlv1.GetQueueStatsRequest) (*pawlv1.GetQueueStatsResponse, error) {
	w, err := windowOf(r.GetWindow())
	if err != nil {
		return nil, err
	}
	q, err := g.Known(ctx, r.GetQueue())
	if err != nil {
		return nil, err
	}
	return share(ctx, g.Sharing, fmt.Sprintf("queue %q %d", q.Name, w), func(ctx context.Context) (*pawlv1.GetQueueStatsResponse, error) {
		report := g.Source.Stats(ctx, stats.Queue{Namespace: callinfo.Namespace(ctx), Name: q.Name}, w)
		return &pawlv1.GetQueueStatsResponse{Queue: q.Name, Stats: statsProto(&report.Value, w, report.Missing)}, nil
	})
}

func statsProto(r *stats.Report, w stats.Window, missing []verb.Missing) *pawlv1.Stats {
	first := r.Last - int64(len(r.Rates)) + 1
	total := r.Total()
	return &pawlv1.Stats{Window: durationpb.New(time.Duration(w)), Step: durationpb.New(w.Step()),
		Start:  timestamppb.New(time.Unix(first*int64(w.Step()/time.Second), 0)),
		Series: seriesProto(r.Rates), Totals: countsProto(total), FailureRate: failureRate(total), Wait: latencyProto(&r.Wait),
		Run: latencyProto(&r.Run), Failing: failingProto(r.Failing), Missing: apiproto.MissingProto(missing)}
}

func failingProto(types []stats.Failing) (list []*pawlv1.FailingType) {
	for _, f := range types {
		list = append(list, &pawlv1.FailingType{Queue: f.Queue, Type: f.Type, Failures: countOf(f.Failures), LastError: f.Last.Error,
			LastErrorType: f.Last.ErrorType, LastAt: timestamppb.New(f.Last.At)})
	}
	return list
}

func seriesProto(rates []stats.Rates) *pawlv1.Series {
	s := &pawlv1.Series{}
	for _, f := range []struct {
		to *[]int64
		of func(*stats.Rates) uint32
	}{
		{&s.Enqueued, func(r *stats.Rates) uint32 { return r.Enqueued }}, {&s.Claimed, func(r *stats.Rates) uint32 { return r.Claimed }},
		{&s.Succeeded, func(r *stats.Rates) uint32 { return r.Succeeded }}, {&s.Failed, func(r *stats.Rates) uint32 { return r.Failed }},
		{&s.Crashed, func(r *stats.Rates) uint32 { return r.Crashed }}, {&s.Dead, func(r *stats.Rates) uint32 { return r.Dead }},
		{&s.Poisoned, func(r *stats.Rates) uint32 { return r.Poisoned }}, {&s.Discarded, func(r *stats.Rates) uint32 {
			return r.Discarded
		}},
		{&s.Cancelled, func(r *stats.Rates) uint32 { return r.Cancelled }}, {&s.Replayed, func(r *stats.Rates) uint32 {
			return r.Replayed
		}},
	} {
		*f.to = make([]int64, len(rates))
		for i := range rates {
			(*f.to)[i] = int64(f.of(&rates[i]))
		}
	}
	return s
}

func countsProto(r stats.Rates) *pawlv1.EventCounts {
	return &pawlv1.EventCounts{Enqueued: int64(r.Enqueued), Claimed: int64(r.Claimed), Succeeded: int64(r.Succeeded),
		Failed: int64(r.Failed), Crashed: int64(r.Crashed), Dead: int64(r.Dead), Poisoned: int64(r.Poisoned), Discarded: int64(r.Discarded),
		Cancelled: int64(r.Cancelled), Replayed: int64(r.Replayed)}
}

// failureRate returns the share of attempts that failed; 0 if none ended.
func failureRate(r stats.Rates) float64 {
	if r.Bad() == 0 {
		return 0
	}
	return float64(r.Bad()) / (float64(r.Bad()) + float64(r.Succeeded))
}

func countOf(n uint64) int64 { return int64(min(n, math.MaxInt64)) } // #nosec G115 -- bounded

// durations is a histogram of durations.
type durations interface {
	Count() uint64
	Mean() time.Duration
	Quantile(q float64) time.Duration
}

func latencyProto(h durations) *pawlv1.Latency {
	return &pawlv1.Latency{Count: countOf(h.Count()), MeanSeconds: h.Mean().Seconds(), P50Seconds: h.Quantile(0.5).Seconds(),
		P95Seconds: h.Quantile(0.95).Seconds(), P99Seconds: h.Quantile(0.99).Seconds()}
}

func totalsProto(n *broker.NamespaceStatus) *pawlv1.QueueTotals {
	p := &pawlv1.QueueTotals{Queues: int64(len(n.Queues)), Scheduled: n.Scheduled, Ready: n.Ready, Claimed: n.Claimed, Retrying: n.Retrying,
		Dead: n.Dead, Poisoned: n.Poisoned}
	for _, q := range n.Busy {
		if age := q.OldestReady.Seconds(); age > p.OldestReadyAgeSeconds {
			p.OldestReadyAgeSeconds, p.OldestReadyQueue = age, q.Queue
		}
	}
	return p
}

// workerCounts counts the workers of all nodes.
type workerCounts interface {
	// CountWorkers counts the workers that take tasks of the given queues, in their order.
	CountWorkers(ctx context.Context, ns string, queues []string) verb.Partial[[]int64]
}

// overviews returns the state of the cluster.
type overviews interface {
	Overview(ctx context.Context) (cluster.Overview, error)
}

// Recent is what nodes remember of the last minutes.
type Recent struct {
	Stats   Stats
	Workers workerCounts
	Sharing *Sharing // nil: each caller has its own reads
}

// lately is what nodes answer about some queues, in their order.
type lately struct {
	briefs  verb.Partial[[]stats.Brief]
	trends  verb.Partial[[]stats.Trend]
	workers verb.Partial[[]int64]
}

func (g Recent) ask(ctx context.Context, series stats.Window, names []string) (all lately, err error) {
	ns := callinfo.Namespace(ctx)
	errs := parallel.Each(3, func(i int) error {
		switch {
		case i == 0:
			all.briefs = g.Stats.Briefs(ctx, ns, names)
		case i == 1 && series != 0:
			all.trends = g.Stats.Trends(ctx, ns, names, series)
		case i == 2:
			all.workers = g.Workers.CountWorkers(ctx, ns, names)
		}
		return nil
	})
	return all, parallel.FirstError(errs)
}

// SetLately adds to queues their recent rates, their series over a window unless it is 0, and their workers if all of
// these are known. It returns which nodes are missing, and adds them to what is missing in each queue.
func (g Recent) SetLately(ctx context.Context, series stats.Window, queues ...*pawlv1.Queue) ([]verb.Missing, error) {
	if len(queues) == 0 {
		return nil, nil
	}
	names := make([]string, len(queues))
	for i, q := range queues {
		names[i] = q.GetQueue()
	}
	all, err := share(ctx, g.Sharing, fmt.Sprintf("queues %q %d", names, series), func(ctx context.Context) (lately, error) {
		return g.ask(ctx, series, names)
	})
	missing := verb.JoinMissing(all.briefs.Missing, all.trends.Missing, all.workers.Missing)
	for i, q := range queues {
		if i < len(all.briefs.Value) {
			setRates(q, &all.briefs.Value[i])
		}
		if i < len(all.trends.Value) {
			q.Series = seriesOfTrend(&all.trends.Value[i], series.TrendStep())
		}
		if i < len(all.workers.Value) && len(all.workers.Missing) == 0 {
			q.Workers = &all.workers.Value[i]
		}
		q.Missing = append(apiproto.MissingProto(missing), q.GetMissing()...)
	}
	return missing, err
}

func seriesOfTrend(t *stats.Trend, step time.Duration) *pawlv1.QueueSeries {
	first := t.Last - int64(len(t.Steps)) + 1
	p := &pawlv1.QueueSeries{Step: durationpb.New(step), Start: timestamppb.New(time.Unix(first*int64(step/time.Second), 0)),
		In: make([]int64, len(t.Steps)), Out: make([]int64, len(t.Steps)), Failed: make([]int64, len(t.Steps)), Succeeded: make([]int64,
			len(t.Steps)), Poisoned: make([]int64, len(t.Steps))}
	for i, f := range t.Steps {
		p.In[i], p.Out[i], p.Failed[i] = int64(f.In), int64(f.Out), int64(f.Failed)
		p.Succeeded[i], p.Poisoned[i] = int64(f.Succeeded), int64(f.Poisoned)
	}
	return p
}

func setRates(q *pawlv1.Queue, b *stats.Brief) {
	if b.Span <= 0 {
		return
	}
	span := b.Span.Seconds()
	q.Rates = &pawlv1.QueueRates{In: float64(b.Rates.In()) / span, Out: float64(b.Rates.Out()) / span,
		Failed: float64(b.Rates.Bad()) / span}
	q.Wait, q.Run = latencyProto(&b.Wait), latencyProto(&b.Run)
	// Tasks that come for later, or that wait to be retried, count once they become ready.
	switch ready, gain := float64(q.GetDepth().GetReady()), float64(b.Rates.Claimed)-float64(b.Rates.Readied); {
	case ready == 0:
		q.DrainSeconds = new(float64)
	case gain > 0:
		seconds := ready * span / gain
		q.DrainSeconds = &seconds
	}
}

// Bounds of GetQueueScale.
const (
	defaultScaleTarget = time.Minute
	maxScaleTarget     = 24 * time.Hour
	defaultScaleSlots  = 10
)

// GetQueueScale returns how many workers a queue needs.
func (g *Service) GetQueueScale(ctx context.Context, r *pawlv1.GetQueueScaleRequest) (*pawlv1.GetQueueScaleResponse, error) {
	target, slots := defaultScaleTarget, int64(defaultScaleSlots)
	if r.GetTarget() != nil {
		var err error
		if target, err = apiproto.SpanOf("target", r.GetTarget()); err != nil {
			return nil, err
		}
	}
	if target < time.Second || target > maxScaleTarget {
		return nil, task.Invalid("target", "%s is not between 1s and 24h", humanize.DurationText(target))
	}
	if r.GetSlots() != 0 {
		slots = int64(r.GetSlots())
	}
	if slots < 1 || slots > contract.MaxScaleSlots {
		return nil, task.Invalid("slots", "%d is not between 1 and %d", slots, contract.MaxScaleSlots)
	}
	q, err := g.Known(ctx, r.GetQueue())
	if errors.Is(err, task.ErrNotFound) {
		// It was not created, and no task came yet. A scaler is often there before the first one.
		return scale(r.GetQueue(), broker.QueueInfo{}, 0, &stats.Brief{}, target, slots), nil
	}
	if err != nil {
		return nil, err
	}
	info, err := g.Whole(ctx, q)
	if err != nil {
		return nil, err
	}
	briefs := g.Source.Briefs(ctx, callinfo.Namespace(ctx), []string{q.Name})
	b, missing := &briefs.Value[0], briefs.Missing
	if b.Run.Count() == 0 && (readyIn(&info) > 0 || b.Rates.Readied > 0) {
		day := g.Source.Stats(ctx, stats.Queue{Namespace: callinfo.Namespace(ctx), Name: q.Name}, stats.Day)
		b.Run, missing = day.Value.Run, verb.JoinMissing(missing, day.Missing)
	}
	out := scale(q.Name, info, q.Config.Settings.MaxRunning, b, target, slots)
	out.Missing = apiproto.MissingProto(missing)
	return out, nil
}

func readyIn(info *broker.QueueInfo) int64 { return info.Ready[0] + info.Ready[1] + info.Ready[2] }

// scale computes how many workers a queue needs: slots for the incoming tasks, each busy for as long as a task runs, and for the
// backlog to be done within the target; no fewer than are in use, since a worker that stops releases its tasks; and no more than
// may run at the same time. Incoming tasks are those that became ready: a task due tomorrow needs no worker today. While a pause, a
// limit or a breaker holds tasks back, it is no more than what got through.
func scale(name string, info broker.QueueInfo, maxRunning int, b *stats.Brief,
	target time.Duration, slots int64) *pawlv1.GetQueueScaleResponse {
	p := &pawlv1.GetQueueScaleResponse{Queue: name, Running: info.Claimed,
		Backlog: max(readyIn(&info)-info.Held, 0)}
	run := 1.0
	if b.Run.Count() > 0 {
		run = b.Run.Mean().Seconds()
		p.RunSeconds = &run
	}
	if b.Span > 0 {
		came := b.Rates.Readied
		if info.Held > 0 {
			came = min(came, b.Rates.Claimed)
		}
		p.ArrivalPerSecond = float64(came) / b.Span.Seconds()
	}
	needed := p.ArrivalPerSecond*run + float64(p.Backlog)*run/target.Seconds()
	if p.Backlog > 0 {
		needed = max(needed, 1)
	}
	if maxRunning > 0 {
		needed = min(needed, float64(maxRunning))
	}
	p.Slots = max(needed, float64(p.Running))
	p.Workers = int64(math.Ceil(p.Slots / float64(slots)))
	p.Active = p.Backlog > 0 || p.Running > 0 || p.ArrivalPerSecond > 0
	return p
}

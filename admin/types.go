package admin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/protobuf/types/known/timestamppb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Types is the group of calls about task types and their recent activity.
type Types struct{ calls }

// Types returns the calls about task types and their recent activity.
func (a Client) Types() Types { return Types(a) }

// TypeFilter selects task types.
type TypeFilter struct {
	Window  time.Duration // 5 minutes, 1 hour or 24 hours; 0: 1 hour
	Queue   string        // count only this queue; "": all queues that the caller may see
	Pattern string        // of types, in which * matches any characters; "": all
	Order   TypeOrder
}

// TypeOrder is the order of a list of types. Only a list by name has more than one page.
type TypeOrder string

const (
	TypesByName  TypeOrder = ""        // by name
	TypesMost    TypeOrder = "most"    // most events in the window first
	TypesFailing TypeOrder = "failing" // most failed attempts first; types without any are left out
)

var typeOrders = []TypeOrder{TypesByName, TypesMost, TypesFailing}

// Type describes what happened to the tasks of a type in a time window.
type Type struct {
	Name          string     // "_other": all types that are not counted separately
	Queues        []string   // queues that recently had tasks of the type; at most 20
	Rates         QueueRates // averages over the window, or over the part of it that is known
	FailureRate   float64    // share of ended attempts that failed, crashed or timed out, 0 to 1
	Totals        EventCounts
	Wait          Latency      // from ready to claimed
	Run           Latency      // from claimed to the end of the run
	Series        *QueueSeries // in steps of 10 s for 5 min, 1 min for 1 h, 30 min for 24 h
	LastError     string
	LastErrorType string
	LastFailedAt  time.Time // zero: no failed attempt is known
}

// TypeStats has the Stats of a type, in steps of 10 s, 1 min or 15 min.
type TypeStats struct {
	Stats
	Type, Queue                 string
	Rates                       QueueRates        // averages over the window, or over the part of it that is known
	Queues                      []string          // all queues that recently had tasks of the type, even if one was asked for
	WaitHistogram, RunHistogram []HistogramBucket // from the first to the last bucket that is not empty
	Slowest                     []SlowRun         // up to 10 runs that ended in the last hour, slowest first
	Comparison                  *Comparison       // nil: not requested, or too little is known
}

// HistogramBucket counts the durations above the previous bucket's bound, up to and including its own. There are two
// buckets per doubling, from 1 ms to 26 h.
type HistogramBucket struct {
	UpTo  time.Duration // 0: everything longer than 26 h
	Count int64
}

// SlowRun is one of the slowest runs.
type SlowRun struct {
	TaskID  string
	Worker  string
	Run     time.Duration
	EndedAt time.Time
	Failed  bool // it failed or timed out
}

// Comparison compares what happened before and after a point in time, in two periods of equal length: at most an hour,
// in whole steps of 1 or 15 minutes. The step that contains the point is in neither.
type Comparison struct {
	Around        time.Time
	Before, After TypePeriod
}

// TypePeriod describes what happened to the tasks of a type in a period.
type TypePeriod struct {
	Start       time.Time
	Length      time.Duration
	Rates       QueueRates
	FailureRate float64
	Totals      EventCounts
	Run         Latency
}

// ListPage returns one page of task types.
func (a Types) ListPage(ctx context.Context, f TypeFilter, page pawltype.PageRequest) (pawltype.Page[*Type], error) {
	order := slices.Index(typeOrders, f.Order)
	if order < 0 {
		return pawltype.Page[*Type]{}, fmt.Errorf("list types: %w", convert.Invalid("order", "%q is not one of most, failing", f.Order))
	}
	resp, err := operate(ctx, a.calls, true, pawlv1.NewStatsServiceClient(a.rpc).ListTypes,
		&pawlv1.ListTypesRequest{Window: convert.Duration(f.Window), Queue: convert.Text(f.Queue),
			Pattern: convert.Text(f.Pattern), Order: pawlv1.TypeOrder(order), Limit: convert.Int32(page.Limit), Cursor: page.Cursor})
	if err != nil {
		return pawltype.Page[*Type]{}, fmt.Errorf("list types: %w", err)
	}
	return convert.Page(resp, typeOf), nil
}

// TypeQuery says which statistics of a type to return.
type TypeQuery struct {
	Window time.Duration // 5 minutes, 1 hour or 24 hours; 0: 1 hour
	Queue  string        // count only this queue; "": all queues that the caller may see
	Around time.Time     // compare before and after this time, such as a deploy in the last 24 hours; zero: no comparison
}

// Stats returns statistics for the tasks of a type. A type that no node remembers has zeros and no queues.
func (a Types) Stats(ctx context.Context, typ string, q TypeQuery) (*TypeStats, error) {
	req := &pawlv1.GetTypeStatsRequest{Type: typ, Window: convert.Duration(q.Window), Queue: convert.Text(q.Queue)}
	if !q.Around.IsZero() {
		req.Around = timestamppb.New(q.Around)
	}
	resp, err := operate(ctx, a.calls, true, pawlv1.NewStatsServiceClient(a.rpc).GetTypeStats, req)
	if err != nil {
		return nil, fmt.Errorf("stats of type %q: %w", typ, err)
	}
	s := &TypeStats{Stats: statsOf(resp.GetStats()), Type: resp.GetType(), Queue: resp.GetQueue(), Rates: ratesOf(resp.GetRates()),
		Queues: resp.GetQueues(), WaitHistogram: histogramOf(resp.GetWaitHistogram()), RunHistogram: histogramOf(resp.GetRunHistogram())}
	for _, r := range resp.GetSlowest() {
		s.Slowest = append(s.Slowest, SlowRun{TaskID: r.GetTaskId(), Worker: r.GetWorker(), Run: convert.Seconds(r.GetRunSeconds()),
			EndedAt: convert.Time(r.GetEndedAt()), Failed: r.GetFailed()})
	}
	if c := resp.GetComparison(); c != nil {
		s.Comparison = &Comparison{Around: convert.Time(c.GetAround()), Before: periodOf(c.GetBefore()), After: periodOf(c.GetAfter())}
	}
	return s, nil
}

func typeOf(p *pawlv1.TypeSummary) *Type {
	return &Type{Name: p.GetType(), Queues: p.GetQueues(), Rates: ratesOf(p.GetRates()), FailureRate: p.GetFailureRate(),
		Totals: countsOf(p.GetTotals()), Wait: latencyOf(p.GetWait()), Run: latencyOf(p.GetRun()), Series: queueSeriesOf(p.GetSeries()),
		LastError: p.GetLastError(), LastErrorType: p.GetLastErrorType(), LastFailedAt: convert.Time(p.GetLastFailedAt())}
}

func histogramOf(buckets []*pawlv1.HistogramBucket) (list []HistogramBucket) {
	for _, b := range buckets {
		list = append(list, HistogramBucket{convert.Seconds(b.GetUpToSeconds()), b.GetCount()})
	}
	return list
}

func periodOf(p *pawlv1.TypePeriod) TypePeriod {
	return TypePeriod{Start: convert.Time(p.GetStart()), Length: p.GetLength().AsDuration(), Rates: ratesOf(p.GetRates()),
		FailureRate: p.GetFailureRate(), Totals: countsOf(p.GetTotals()), Run: latencyOf(p.GetRun())}
}

func ratesOf(p *pawlv1.QueueRates) QueueRates {
	return QueueRates{In: p.GetIn(), Out: p.GetOut(), Failed: p.GetFailed()}
}

func countsOf(p *pawlv1.EventCounts) EventCounts {
	return EventCounts{p.GetEnqueued(), p.GetClaimed(), p.GetSucceeded(), p.GetFailed(), p.GetCrashed(), p.GetDead(), p.GetPoisoned(),
		p.GetDiscarded(), p.GetCancelled(), p.GetReplayed()}
}

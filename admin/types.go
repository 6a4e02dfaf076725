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

// Types are the calls about types of tasks: what happened to them lately.
type Types struct{ calls }

// Types tells what happened to types of tasks.
func (a Client) Types() Types { return Types(a) }

// TypeFilter says which types are listed.
type TypeFilter struct {
	Window  time.Duration // 5 minutes, an hour or 24; 0: an hour
	Queue   string        // only what happened in it; "": in all that the caller may see
	Pattern string        // a type, in which each * stands for any characters; "": all
	Order   TypeOrder
}

// TypeOrder is the order of a list of types. A list in another order than by name has one page.
type TypeOrder string

const (
	TypesByName  TypeOrder = ""        // by name
	TypesMost    TypeOrder = "most"    // first those to which most happened in the window
	TypesFailing TypeOrder = "failing" // first those with the most attempts that ended badly, and only those with any
)

var typeOrders = []TypeOrder{TypesByName, TypesMost, TypesFailing}

// Type is what happened to the tasks of a type in a window.
type Type struct {
	Name          string     // "_other": types that are not counted apart
	Queues        []string   // that have had its tasks lately; at most 20
	Rates         QueueRates // on average in the window, or in as much of it as is known
	FailureRate   float64    // of the attempts that ended: those that failed, crashed or timed out, 0 to 1
	Totals        EventCounts
	Wait          Latency      // from ready to claimed
	Run           Latency      // from claimed to the end of the run
	Series        *QueueSeries // in steps of 10 s in 5 minutes, 1 min in an hour, 30 min in 24 hours
	LastError     string
	LastErrorType string
	LastFailedAt  time.Time // zero: no attempt is known to have ended badly
}

// TypeStats are the Stats of a type, in steps of 10 s, 1 min or 15 min.
type TypeStats struct {
	Stats
	Type, Queue                 string
	Rates                       QueueRates        // on average in the window, or in as much of it as is known
	Queues                      []string          // that have had its tasks lately, whichever is asked for
	WaitHistogram, RunHistogram []HistogramBucket // from the first to the last in which there is something
	Slowest                     []SlowRun         // runs that ended in the last hour, the slowest first: at most 10
	Comparison                  *Comparison       // nil: none was asked for, or too little is known
}

// HistogramBucket counts durations that are longer than the bound of the bucket before and no longer than its own. There are two buckets for each
// doubling, from 1 ms to 26 h.
type HistogramBucket struct {
	UpTo  time.Duration // 0: it has all that is longer than 26 h
	Count int64
}

// SlowRun is a run of a task that took long.
type SlowRun struct {
	TaskID  string
	Worker  string
	Run     time.Duration
	EndedAt time.Time
	Failed  bool // it failed or timed out
}

// Comparison is what happened before and after a time, in two periods of the same length: at most an hour, in whole minutes or 15 minutes. The step in
// which the time lies is in neither.
type Comparison struct {
	Around        time.Time
	Before, After TypePeriod
}

// TypePeriod is what happened to the tasks of a type in some time.
type TypePeriod struct {
	Start       time.Time
	Length      time.Duration
	Rates       QueueRates
	FailureRate float64
	Totals      EventCounts
	Run         Latency
}

// TypePage is a page of types.
type TypePage struct {
	pawltype.Page[*Type]
	MissingNodes []string // nodes that did not answer; what they have seen is not counted
}

// ListPage returns a page of types.
func (a Types) ListPage(ctx context.Context, f TypeFilter, page pawltype.PageRequest) (TypePage, error) {
	order := slices.Index(typeOrders, f.Order)
	if order < 0 {
		return TypePage{}, fmt.Errorf("list types: %w", convert.Invalid("order", "%q is not one of most, failing", f.Order))
	}
	resp, err := operate(ctx, a.calls, true, pawlv1.NewStatsServiceClient(a.rpc).ListTypes, &pawlv1.ListTypesRequest{Window: convert.Duration(f.Window), Queue: f.Queue,
		Pattern: f.Pattern, Order: pawlv1.TypeOrder(order), Limit: convert.Int32(page.Limit), Cursor: page.Cursor})
	if err != nil {
		return TypePage{}, fmt.Errorf("list types: %w", err)
	}
	return TypePage{Page: convert.Page(resp, typeOf), MissingNodes: resp.GetMissingNodes()}, nil
}

// TypeQuery says what is asked of a type.
type TypeQuery struct {
	Window time.Duration // 5 minutes, an hour or 24; 0: an hour
	Queue  string        // only what happened in it; "": in all that the caller may see
	Around time.Time     // what happened before and after it is compared, such as a deploy of the last 24 hours; zero: nothing is
}

// Stats tells what happened to the tasks of a type. One that no node remembers has zeros and no queues.
func (a Types) Stats(ctx context.Context, typ string, q TypeQuery) (*TypeStats, error) {
	req := &pawlv1.GetTypeStatsRequest{Type: typ, Window: convert.Duration(q.Window), Queue: q.Queue}
	if !q.Around.IsZero() {
		req.Around = timestamppb.New(q.Around)
	}
	resp, err := operate(ctx, a.calls, true, pawlv1.NewStatsServiceClient(a.rpc).GetTypeStats, req)
	if err != nil {
		return nil, fmt.Errorf("stats of type %q: %w", typ, err)
	}
	s := &TypeStats{Stats: statsOf(resp.GetStats()), Type: resp.GetType(), Queue: resp.GetQueue(), Rates: ratesOf(resp.GetRates()), Queues: resp.GetQueues(),
		WaitHistogram: histogramOf(resp.GetWaitHistogram()), RunHistogram: histogramOf(resp.GetRunHistogram())}
	for _, r := range resp.GetSlowest() {
		s.Slowest = append(s.Slowest, SlowRun{TaskID: r.GetTaskId(), Worker: r.GetWorker(), Run: convert.Seconds(r.GetRunSeconds()), EndedAt: convert.Time(r.GetEndedAt()), Failed: r.GetFailed()})
	}
	if c := resp.GetComparison(); c != nil {
		s.Comparison = &Comparison{Around: convert.Time(c.GetAround()), Before: periodOf(c.GetBefore()), After: periodOf(c.GetAfter())}
	}
	return s, nil
}

func typeOf(p *pawlv1.TypeSummary) *Type {
	return &Type{Name: p.GetType(), Queues: p.GetQueues(), Rates: ratesOf(p.GetRates()), FailureRate: p.GetFailureRate(), Totals: countsOf(p.GetTotals()),
		Wait: latencyOf(p.GetWait()), Run: latencyOf(p.GetRun()), Series: queueSeriesOf(p.GetSeries()), LastError: p.GetLastError(),
		LastErrorType: p.GetLastErrorType(), LastFailedAt: convert.Time(p.GetLastFailedAt())}
}

func histogramOf(buckets []*pawlv1.HistogramBucket) (list []HistogramBucket) {
	for _, b := range buckets {
		list = append(list, HistogramBucket{convert.Seconds(b.GetUpToSeconds()), b.GetCount()})
	}
	return list
}

func periodOf(p *pawlv1.TypePeriod) TypePeriod {
	return TypePeriod{Start: convert.Time(p.GetStart()), Length: p.GetLength().AsDuration(), Rates: ratesOf(p.GetRates()), FailureRate: p.GetFailureRate(),
		Totals: countsOf(p.GetTotals()), Run: latencyOf(p.GetRun())}
}

func ratesOf(p *pawlv1.QueueRates) QueueRates {
	return QueueRates{In: p.GetIn(), Out: p.GetOut(), Failed: p.GetFailed()}
}

func countsOf(p *pawlv1.EventCounts) EventCounts {
	return EventCounts{p.GetEnqueued(), p.GetClaimed(), p.GetSucceeded(), p.GetFailed(), p.GetCrashed(), p.GetDead(), p.GetPoisoned(),
		p.GetDiscarded(), p.GetCancelled(), p.GetReplayed()}
}

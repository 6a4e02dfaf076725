package rest

import (
	"net/url"
	"strconv"

	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

var statsRoutes = []Route{
	{"GET", "/api/v1/stats", "StatsService/GetStats", getStats},
	{"GET", "/api/v1/queues/{queue}/stats", "StatsService/GetQueueStats", getQueueStats},
	{"GET", "/api/v1/queues/{queue}/scale", "StatsService/GetQueueScale", getQueueScale},
}

// spanQuery reads a parameter that is a duration; nil if it is not given.
func spanQuery(q url.Values, name string) (*durationpb.Duration, error) {
	if !q.Has(name) {
		return nil, nil
	}
	return spanText(name, q.Get(name))
}

func getStats(x *exchange) error {
	q, err := x.query("window")
	if err != nil {
		return err
	}
	window, err := spanQuery(q, "window")
	if err != nil {
		return err
	}
	got, err := x.API.Stats.GetStats(x.ctx, &pawlv1.GetStatsRequest{Window: window})
	if err != nil {
		return err
	}
	x.open('{')
	x.stats(got.GetStats())
	t := got.GetQueues()
	x.within("queues", '{')
	x.num("queues", t.GetQueues())
	x.num("scheduled", t.GetScheduled())
	x.num("ready", t.GetReady())
	x.num("claimed", t.GetClaimed())
	x.num("retrying", t.GetRetrying())
	x.num("dead", t.GetDead())
	x.num("poisoned", t.GetPoisoned())
	x.float("oldest_ready_age_seconds", t.GetOldestReadyAgeSeconds())
	x.opt("oldest_ready_queue", t.GetOldestReadyQueue())
	x.close('}')
	objects(x, "attention", got.GetAttention(), func(a *pawlv1.Attention) {
		x.str("kind", a.GetKind())
		x.str("severity", a.GetSeverity())
		x.opt("subject", a.GetSubject())
		x.str("detail", a.GetDetail())
		x.float("value", a.GetValue())
		x.num("more", a.GetMore())
	})
	x.close('}')
	return nil
}

func getQueueStats(x *exchange) error {
	q, err := x.query("window")
	if err != nil {
		return err
	}
	window, err := spanQuery(q, "window")
	if err != nil {
		return err
	}
	got, err := x.API.Stats.GetQueueStats(x.ctx, &pawlv1.GetQueueStatsRequest{Queue: x.r.PathValue("queue"), Window: window})
	if err != nil {
		return err
	}
	x.open('{')
	x.str("queue", got.GetQueue())
	x.stats(got.GetStats())
	x.close('}')
	return nil
}

// stats writes the fields of statistics into an object that is open.
func (x *exchange) stats(s *pawlv1.Stats) {
	x.span("window", s.GetWindow())
	x.span("step", s.GetStep())
	x.time("start", s.GetStart())
	r, t := s.GetSeries(), s.GetTotals()
	x.within("series", '{')
	for _, f := range []struct {
		name string
		of   []int64
	}{{"enqueued", r.GetEnqueued()}, {"claimed", r.GetClaimed()}, {"succeeded", r.GetSucceeded()}, {"failed", r.GetFailed()}, {"crashed", r.GetCrashed()},
		{"dead", r.GetDead()}, {"poisoned", r.GetPoisoned()}, {"discarded", r.GetDiscarded()}, {"cancelled", r.GetCancelled()}, {"replayed", r.GetReplayed()}} {
		x.nums(f.name, f.of)
	}
	x.close('}')
	x.within("totals", '{')
	x.num("enqueued", t.GetEnqueued())
	x.num("claimed", t.GetClaimed())
	x.num("succeeded", t.GetSucceeded())
	x.num("failed", t.GetFailed())
	x.num("crashed", t.GetCrashed())
	x.num("dead", t.GetDead())
	x.num("poisoned", t.GetPoisoned())
	x.num("discarded", t.GetDiscarded())
	x.num("cancelled", t.GetCancelled())
	x.num("replayed", t.GetReplayed())
	x.close('}')
	x.float("failure_rate", s.GetFailureRate())
	x.latency("wait", s.GetWait())
	x.latency("run", s.GetRun())
	x.failing(s.GetFailing())
	x.strs("missing_nodes", s.GetMissingNodes())
}

func (x *exchange) nums(name string, list []int64) {
	x.within(name, '[')
	for _, n := range list {
		x.comma()
		x.b = strconv.AppendInt(x.b, n, 10)
	}
	x.close(']')
}

func (x *exchange) failing(types []*pawlv1.FailingType) {
	objects(x, "failing", types, func(f *pawlv1.FailingType) {
		x.str("queue", f.GetQueue())
		x.str("type", f.GetType())
		x.num("failures", f.GetFailures())
		x.opt("last_error", f.GetLastError())
		x.opt("last_error_type", f.GetLastErrorType())
		x.time("last_at", f.GetLastAt())
	})
}

func (x *exchange) latency(name string, l *pawlv1.Latency) {
	if l == nil {
		return
	}
	x.within(name, '{')
	x.num("count", l.GetCount())
	x.float("mean_seconds", l.GetMeanSeconds())
	x.float("p50_seconds", l.GetP50Seconds())
	x.float("p95_seconds", l.GetP95Seconds())
	x.float("p99_seconds", l.GetP99Seconds())
	x.close('}')
}

// lately writes what happened to a queue lately, and who works on it, as far as it is told.
func (x *exchange) lately(q *pawlv1.Queue) {
	if r := q.GetRates(); r != nil {
		x.within("rates", '{')
		x.float("in", r.GetIn())
		x.float("out", r.GetOut())
		x.float("failed", r.GetFailed())
		x.close('}')
	}
	x.latency("wait", q.GetWait())
	x.latency("run", q.GetRun())
	if q.DrainSeconds != nil {
		x.float("drain_seconds", q.GetDrainSeconds())
	}
	if q.Workers != nil {
		x.num("workers", q.GetWorkers())
	}
	if s := q.GetSeries(); s != nil {
		x.within("series", '{')
		x.span("step", s.GetStep())
		x.time("start", s.GetStart())
		x.nums("in", s.GetIn())
		x.nums("out", s.GetOut())
		x.nums("failed", s.GetFailed())
		x.nums("succeeded", s.GetSucceeded())
		x.nums("poisoned", s.GetPoisoned())
		x.close('}')
	}
}

func getQueueScale(x *exchange) error {
	q, err := x.query("target", "slots")
	if err != nil {
		return err
	}
	req := &pawlv1.GetQueueScaleRequest{Queue: x.r.PathValue("queue")}
	if req.Target, err = spanQuery(q, "target"); err != nil {
		return err
	}
	if q.Has("slots") {
		n, err := strconv.ParseInt(q.Get("slots"), 10, 32)
		if err != nil || n < 1 || n > contract.MaxScaleSlots {
			return task.Invalid("slots", "%q is not between 1 and %d", task.Cut(q.Get("slots"), 64), contract.MaxScaleSlots)
		}
		req.Slots = int32(n) // #nosec G115 -- bounded
	}
	got, err := x.API.Stats.GetQueueScale(x.ctx, req)
	if err != nil {
		return err
	}
	x.open('{')
	x.str("queue", got.GetQueue())
	x.num("workers", got.GetWorkers())
	x.float("slots", got.GetSlots())
	x.boolean("active", got.GetActive())
	x.num("backlog", got.GetBacklog())
	x.num("running", got.GetRunning())
	x.float("arrival_per_second", got.GetArrivalPerSecond())
	if got.RunSeconds != nil {
		x.float("run_seconds", got.GetRunSeconds())
	}
	x.close('}')
	return nil
}

package statistics

import (
	"math"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/stats"
)

// A queue needs slots for its inflow and backlog: at least those in use, and at most those that may run.
func TestScale(t *testing.T) {
	ran := func(mean time.Duration) (b stats.Brief) {
		if mean > 0 {
			b.Run = histogramOf(1, mean)
		}
		return b
	}
	for _, c := range []struct {
		name            string
		info            broker.QueueInfo
		most            int
		brief           stats.Brief
		readied, claims uint64 // per minute
		slots           float64
		workers         int64
		active          bool
	}{
		{"nothing", broker.QueueInfo{}, 0, ran(0), 0, 0, 0, 0, false},
		{"a backlog, nobody knows how long tasks run", broker.QueueInfo{Ready: [3]int64{10, 10, 10}}, 0, ran(0), 0, 0, 3, 2, true},
		{"a small one needs one slot", broker.QueueInfo{Ready: [3]int64{1, 0, 0}}, 0, ran(0), 0, 0, 1, 1, true},
		{"tasks of four seconds", broker.QueueInfo{Ready: [3]int64{0, 30, 0}}, 0, ran(4 * time.Second), 0, 0, 12, 6, true},
		{"as many as may run", broker.QueueInfo{Ready: [3]int64{0, 30, 0}}, 5, ran(4 * time.Second), 0, 0, 5, 3, true},
		{"what is held is none", broker.QueueInfo{Ready: [3]int64{0, 30, 0}, Held: 30}, 0, ran(4 * time.Second), 0, 0, 0, 0, false},
		{"what runs", broker.QueueInfo{Claimed: 3}, 0, ran(0), 0, 0, 3, 2, true},
		{"what comes in", broker.QueueInfo{}, 0, ran(4 * time.Second), 60, 60, 4, 2, true},
		{"of what comes in and is not claimed yet, all", broker.QueueInfo{}, 0, ran(4 * time.Second), 60, 15, 4, 2, true},
		{"of what is held back, what gets through", broker.QueueInfo{Ready: [3]int64{0, 1, 0}, Held: 1}, 0, ran(4 * time.Second),
			60, 15, 1, 1, true},
	} {
		if c.readied > 0 {
			c.brief.Span, c.brief.Rates.Readied, c.brief.Rates.Claimed = time.Minute, uint32(c.readied),
				uint32(c.claims) // #nosec G115 -- a few
		}
		p := scale("q", c.info, c.most, &c.brief, 10*time.Second, 2)
		if math.Abs(p.GetSlots()-c.slots) > 0.3 || p.GetWorkers() != c.workers || p.GetActive() != c.active ||
			(p.RunSeconds != nil) != (c.brief.Run.Count() > 0) {
			t.Errorf("%s: scale = %v, want %v slots and %d workers", c.name, p, c.slots, c.workers)
		}
	}
}

// The statistics before and after a time are returned with the length of each period.
func TestPeriodsAreShown(t *testing.T) {
	p := &stats.Period{From: 100, Seconds: 10, Rates: stats.Rates{Enqueued: 50, Readied: 50, Succeeded: 30, Failed: 10}}
	got := typePeriodProto(p)
	if got.GetStart().AsTime().Unix() != 100 || got.GetStart().GetNanos() != 0 || got.GetLength().AsDuration() != 10*time.Second ||
		got.GetFailureRate() != 0.25 || got.GetTotals().GetSucceeded() != 30 || got.GetRates().GetIn() != float64(p.Rates.In())/10 ||
		got.GetRates().GetOut() != float64(p.Rates.Out())/10 || got.GetRates().GetFailed() != 1 {
		t.Errorf("typePeriodProto = %v", got)
	}
}

// The time to compare around must be within the last 24 hours.
func TestCompareAround(t *testing.T) {
	now := time.Unix(1_000_000, 0).UTC()
	for ago, good := range map[time.Duration]bool{0: true, -1: false, 1: true, maxAround: true, maxAround + 1: false} {
		if at, err := aroundOf(timestamppb.New(now.Add(-ago)), now); (err == nil) != good || good && !at.Equal(now.Add(-ago)) {
			t.Errorf("aroundOf a time %v ago = %v, %v", ago, at, err)
		}
	}
	if at, err := aroundOf(nil, now); err != nil || !at.IsZero() {
		t.Errorf("aroundOf no time = %v, %v", at, err)
	}
}

// histogramOf returns a histogram of n durations.
func histogramOf(n int, d time.Duration) stats.Histogram {
	e := stats.Event{Namespace: "n", Queue: "q", Type: "t", Ran: d}
	e.Counts = e.Counts.With(stats.Succeeded)
	now := time.Now()
	recorder := stats.New(now.Add(-time.Hour))
	for range n {
		recorder.Record(now, []stats.Event{e})
	}
	return recorder.Briefs(now, "n", []string{"q"})[0].Run
}

package chart

import (
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/admin"
)

func TestHistogram(t *testing.T) {
	ms := time.Millisecond
	l := admin.Latency{Count: 8, P50: 20 * ms, P95: 40 * ms, P99: 41 * ms}
	h := NewHistogram("runs", []admin.HistogramBucket{{UpTo: 16 * ms, Count: 1}, {UpTo: 22627 * time.Microsecond, Count: 4},
		{UpTo: 32 * ms}, {UpTo: 45254 * time.Microsecond, Count: 3}}, l)
	if len(h.Bars) != 3 || h.Top != 4 || h.Bars[1].Height != "100%" || h.Bars[2].Height != "75%" || h.Bars[0].Width != "6.25%" {
		t.Errorf("the bars are %+v", h.Bars)
	}
	if h.Bars[1].Title != "16 ms to 23 ms\n4, 50 %" {
		t.Errorf("the second bar's title is %q", h.Bars[1].Title)
	}
	// The buckets are in the middle of the axis, and a bound is at the edge of a bar.
	if first := h.Bars[0].X; first != "37.5%" {
		t.Errorf("the first bar is at %s, want it in the middle of the axis", first)
	}
	if at := histogramPlace(16 * ms); at != 8 {
		t.Errorf("histogramPlace(16 ms) = %v, want 8", at)
	}
	var marks []string
	for _, m := range h.Marks {
		marks = append(marks, m.Label)
	}
	if got := strings.Join(marks, ", "); got != "p50 20 ms, p95 40 ms, p99 41 ms" {
		t.Errorf("the marks are %s", got)
	}
	for _, tick := range h.Ticks {
		if tick.X < "0" || strings.HasPrefix(tick.X, "-") || len(tick.X) > 7 {
			t.Errorf("a tick is outside the axis: %+v", tick)
		}
	}
	if len(h.Ticks) < 3 || len(h.Ticks) > mostTicks {
		t.Errorf("the ticks are %+v", h.Ticks)
	}
	if h := NewHistogram("none", nil, admin.Latency{}); len(h.Bars) != 0 {
		t.Errorf("a histogram without buckets is %+v, want no bars", h)
	}
	// The shortest durations start at the left edge. Those beyond all bounds have a bar of their own, and marks stay on the axis.
	ends := NewHistogram("ends", []admin.HistogramBucket{{UpTo: ms, Count: 1}}, admin.Latency{Count: 1, P50: ms / 2, P95: ms, P99: ms})
	long := NewHistogram("long", []admin.HistogramBucket{{Count: 2}}, admin.Latency{Count: 2, P50: 27 * time.Hour, P95: 27 * time.Hour,
		P99: 27 * time.Hour})
	if ends.Bars[0].X != "0%" || ends.Bars[0].Title != "up to 1 ms\n1, 100 %" || !strings.HasPrefix(long.Bars[0].Title, "over 1 day 2 h") {
		t.Errorf("the bars at the ends are %+v and %+v", ends.Bars, long.Bars)
	}
}

func TestShares(t *testing.T) {
	s := &admin.Stats{Start: time.Unix(0, 0), Step: time.Minute, FailureRate: 0.02, Totals: admin.EventCounts{Succeeded: 98, Failed: 2},
		Series: []admin.EventCounts{{}, {Succeeded: 48, Failed: 1, Crashed: 1}, {Succeeded: 50}}}
	c := NewShares(s)
	if len(c.Bars) != 2 || c.Top != "5 %" || c.Bars[0].Height != "80%" || c.Bars[0].Class != "f-dead" || c.Bars[1].Class != "quiet" ||
		c.Empty || c.None {
		t.Errorf("the chart is %+v", c)
	}
	if !strings.HasSuffix(c.Bars[0].Title, "2 of 50 attempts failed, 4 %") {
		t.Errorf("the first bar's title is %q", c.Bars[0].Title)
	}
	if c := NewShares(&admin.Stats{Series: []admin.EventCounts{{Enqueued: 3}}}); !c.None || !c.Empty {
		t.Errorf("the chart without attempts is %+v, want it empty", c)
	}
}

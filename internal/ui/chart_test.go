package ui

import (
	"slices"
	"testing"
	"time"

	"github.com/pawlq/pawl"
)

func TestSparksAreSmallAndTrue(t *testing.T) {
	for _, c := range []struct {
		out, failed []int64
		area, marks string
	}{
		{[]int64{0, 0, 0}, []int64{0, 0, 0}, "M0 20h3V20z", ""},
		{[]int64{1, 1000, 1000, 0, 500}, []int64{0, 2, 1, 0, 9}, "M0 20v-1h1v-19h2v20h1v-10h1V20z", "M1 20h2v3h-2zM4 20h1v3h-1z"},
	} {
		s := sparkOf(&pawl.QueueSeries{Step: time.Minute, Out: c.out, Failed: c.failed, In: []int64{7}})
		if s.Area != c.area || s.Failed != c.marks || s.Width != len(c.out) {
			t.Errorf("%v and %v are drawn as %q and %q, want %q and %q", c.out, c.failed, s.Area, s.Failed, c.area, c.marks)
		}
	}
	if sparkOf(nil) != nil || sparkOf(&pawl.QueueSeries{}) != nil {
		t.Error("nothing is drawn")
	}
}

// TestRunsSayWhenClocksChange goes over the night in which Vienna's clocks go back.
func TestRunsSayWhenClocksChange(t *testing.T) {
	day := func(d int, hour int) time.Time { return time.Date(2026, 10, d, hour, 30, 0, 0, time.UTC) }
	runs := runsOf(&pawl.ScheduleInfo{TimeZone: "Europe/Vienna", UpdatedAt: day(20, 0), PlannedAt: day(24, 1), Coming: []time.Time{day(25, 2), day(26, 2)}})
	want := []run{
		{day(24, 1), "Sat 24 Oct 2026 03:30:00 CEST", "24 Oct 01:30:00", ""},
		{day(25, 2), "Sun 25 Oct 2026 03:30:00 CET", "25 Oct 02:30:00", "clocks change by -60 min"},
		{day(26, 2), "Mon 26 Oct 2026 03:30:00 CET", "26 Oct 02:30:00", ""},
	}
	if !slices.Equal(runs, want) {
		t.Errorf("got %+v, want %+v", runs, want)
	}
	if runs := runsOf(&pawl.ScheduleInfo{}); runs != nil {
		t.Errorf("a paused one has %v", runs)
	}
}

func TestChartScales(t *testing.T) {
	for n, want := range map[int64]int64{0: 1, 1: 1, 3: 5, 7: 10, 11: 20, 49: 50, 501: 1000} {
		if got := niceTop(n); got != want {
			t.Errorf("the top of %d is %d, want %d", n, got, want)
		}
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := chartOf("tasks", start, time.Minute, []series{{"succeeded", "succeeded", []int64{30, 0, 90}}, {"failed", "failed", []int64{10, 0, 0}}}, series{"line", "enqueued", []int64{100, 5, 0}})
	if c.Width != 30 || c.Top != "1.7/s" || c.Empty || c.Line != "5,0.0 15,95.0 25,100.0" {
		t.Errorf("got %+v", c)
	}
	if b := c.Bars[0]; len(b.Pieces) != 2 || b.Pieces[0].Y != 70 || b.Pieces[1].Y != 60 || b.Title != "00:00:00 UTC\nsucceeded: 30\nfailed: 10\nenqueued: 100" {
		t.Errorf("the first bar is %+v", b)
	}
	if len(c.Bars[1].Pieces) != 0 || c.Legend[0].N != 120 || c.Legend[2].N != 105 {
		t.Errorf("got %+v %+v", c.Bars[1], c.Legend)
	}
	if empty := chartOf("", start, time.Minute, nil, series{}); !empty.Empty || len(empty.Bars) != 0 {
		t.Errorf("nothing is drawn as %+v", empty)
	}
}

package ui

import (
	"slices"
	"testing"
	"time"

	"github.com/pawlq/pawl/admin"
)

func TestSparksAreSmallAndTrue(t *testing.T) {
	none := []int64{0, 0, 0, 0, 0}
	for _, c := range []struct {
		name string
		s    admin.QueueSeries
		want spark
	}{
		{"nothing", admin.QueueSeries{In: none, Out: none, Failed: none, Succeeded: none, Poisoned: none}, spark{Label: "0 enqueued, 0 succeeded"}},
		{"success", admin.QueueSeries{In: none, Out: []int64{1, 1000, 1000, 0, 500}, Failed: []int64{0, 2, 1, 0, 9}, Succeeded: []int64{1, 1000, 1000, 0, 500}, Poisoned: none},
			spark{Label: "0 enqueued, 2,501 succeeded, 12 attempts failed", Area: "M0 20v-1h1v-19h2v20h1v-10h1V20z", Failed: "M1 20h2v3h-2zM4 20h1v3h-1z"}},
		{"arrivals alone", admin.QueueSeries{In: []int64{0, 100, 50, 0, 0}, Out: none, Failed: none, Succeeded: none, Poisoned: none}, spark{Label: "150 enqueued, 0 succeeded", Came: "M0 20h1v-20h1v10h1v10h2"}},
		{"poison", admin.QueueSeries{In: none, Out: []int64{0, 0, 7, 0, 0}, Failed: none, Succeeded: none, Poisoned: []int64{0, 0, 7, 0, 0}}, spark{Label: "0 enqueued, 0 succeeded, 7 poisoned", Failed: "M2 20h1v3h-1z"}},
		{"cancelled", admin.QueueSeries{In: none, Out: []int64{0, 400, 0, 0, 0}, Failed: none, Succeeded: none, Poisoned: none}, spark{Label: "0 enqueued, 0 succeeded, 400 ended another way"}},
	} {
		c.s.Step, c.want.Width = time.Minute, 5
		c.want.Label += " in " + spanText(5*time.Minute)
		if got := *sparkOf(&c.s); got != c.want {
			t.Errorf("%s is drawn as %+v, want %+v", c.name, got, c.want)
		}
	}
	long := make([]int64, 60)
	long[58], long[59] = 3, 4
	if s := sparkOf(&admin.QueueSeries{Step: time.Minute, Out: long, Succeeded: long}); s.Width != 30 || s.Area != "M0 20h29v-20h1V20z" {
		t.Errorf("60 steps are drawn as %+v", s)
	}
	if sparkOf(nil) != nil || sparkOf(&admin.QueueSeries{}) != nil {
		t.Error("nothing is drawn")
	}
}

func TestTrendsSayTheirLastHour(t *testing.T) {
	for _, c := range []struct {
		hours []int64
		want  trend
	}{
		{[]int64{0, 0, 0}, trend{Label: "0 in the last hour, 0 in 3 hours", Width: 3}},
		{[]int64{4, 0, 2}, trend{Label: "2 in the last hour, 6 in 3 hours", Width: 3, LastHour: 2, Area: "M0 20v-20h1v20h1v-10h1V20z"}},
		{[]int64{1, 1000000, 0}, trend{Label: "0 in the last hour, 1,000,001 in 3 hours", Width: 3, Area: "M0 20v-1h1v-19h1v20h1V20z"}},
	} {
		if got := trendOf(c.hours); got != c.want {
			t.Errorf("%v is drawn as %+v, want %+v", c.hours, got, c.want)
		}
	}
}

func TestAxesHaveTheUnitOfTheirSteps(t *testing.T) {
	for step, want := range map[time.Duration]string{time.Second: "50/s", 10 * time.Second: "50/10 s", time.Minute: "50/min", 30 * time.Minute: "50/30 min", time.Hour: "50/h", 0: "50"} {
		if got := stepWords(50, step); got != want {
			t.Errorf("50 in a step of %v are %q, want %q", step, got, want)
		}
	}
}

// TestRunsSayWhenClocksChange goes over the night in which Vienna's clocks go back.
func TestRunsSayWhenClocksChange(t *testing.T) {
	day := func(d int, hour int) time.Time { return time.Date(2026, 10, d, hour, 30, 0, 0, time.UTC) }
	runs := runsOf(&admin.Schedule{TimeZone: "Europe/Vienna", UpdatedAt: day(20, 0), PlannedAt: day(24, 1), Coming: []time.Time{day(25, 2), day(26, 2)}})
	want := []run{
		{day(24, 1), "Sat 24 Oct 2026 03:30:00 CEST", "24 Oct 01:30:00", ""},
		{day(25, 2), "Sun 25 Oct 2026 03:30:00 CET", "25 Oct 02:30:00", "clocks change by -60 min"},
		{day(26, 2), "Mon 26 Oct 2026 03:30:00 CET", "26 Oct 02:30:00", ""},
	}
	if !slices.Equal(runs, want) {
		t.Errorf("got %+v, want %+v", runs, want)
	}
	if runs := runsOf(&admin.Schedule{}); runs != nil {
		t.Errorf("a paused one has %v", runs)
	}
	for _, zone := range []string{"", "UTC", "Etc/UTC"} {
		if runs := runsOf(&admin.Schedule{TimeZone: zone, PlannedAt: day(24, 1)}); runs[0].UTC != "" {
			t.Errorf("a run of zone %q is shown twice: %+v", zone, runs)
		}
	}
	if runs := runsOf(&admin.Schedule{TimeZone: "Europe/London", PlannedAt: day(28, 1)}); runs[0].UTC == "" {
		t.Error("a run in London is shown by its own clocks only")
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
	if c.Width != 30 || c.Top != "100/min" || c.Empty || c.Line != "5,0.0 15,95.0" {
		t.Errorf("got %+v", c)
	}
	if b := c.Bars[0]; len(b.Pieces) != 2 || b.Pieces[0].Y != 70 || b.Pieces[1].Y != 60 || b.Title != "1 Jan 00:00:00 UTC\nsucceeded: 30\nfailed: 10\nenqueued: 100" {
		t.Errorf("the first bar is %+v", b)
	}
	if c.Bars[1].Running || !c.Bars[2].Running || c.Bars[2].Title != "1 Jan 00:02:00 UTC, so far\nsucceeded: 90\nfailed: 0\nenqueued: 0" {
		t.Errorf("the step that runs is %+v", c.Bars[2])
	}
	if rises := chartOf("", start, time.Minute, nil, series{"line", "enqueued", []int64{5, 6}}); rises.Line != "5,50.0 15,40.0" {
		t.Errorf("a line that rises in the step that runs is %q", rises.Line)
	}
	if len(c.Bars[1].Pieces) != 0 || c.Legend[0].N != 120 || c.Legend[2].N != 105 {
		t.Errorf("got %+v %+v", c.Bars[1], c.Legend)
	}
	if empty := chartOf("", start, time.Minute, nil, series{}); !empty.Empty || len(empty.Bars) != 0 {
		t.Errorf("nothing is drawn as %+v", empty)
	}
}

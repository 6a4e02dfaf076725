package ui

import (
	"reflect"
	"slices"
	"strings"
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
		c.want.Label += " in " + durationText(5*time.Minute)
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

func TestChartsSayWhatABarCounts(t *testing.T) {
	for step, want := range map[time.Duration]string{time.Second: "per second", 10 * time.Second: "per 10 s", time.Minute: "per minute", 30 * time.Minute: "per 30 min", time.Hour: "per hour", 0: ""} {
		if got := stepWords(step); got != want {
			t.Errorf("a step of %v is %q, want %q", step, got, want)
		}
	}
}

// TestRunsSayWhenClocksChange covers the night in which Vienna's clocks go back.
func TestRunsSayWhenClocksChange(t *testing.T) {
	day := func(d int, hour int) time.Time { return time.Date(2026, 10, d, hour, 30, 0, 0, time.UTC) }
	runs := runsOf(&admin.Schedule{TimeZone: "Europe/Vienna", UpdatedAt: day(20, 0), PlannedAt: day(24, 1), Coming: []time.Time{day(25, 2), day(26, 2)}})
	want := []run{
		{day(24, 1), "Sat 24 Oct 2026 03:30:00 CEST", "24 Oct 01:30:00", ""},
		{day(25, 2), "Sun 25 Oct 2026 03:30:00 CET", "25 Oct 02:30:00", "clocks shift by -60 min"},
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
	for n, want := range map[int64]int64{0: 1, 1: 1, 3: 3, 7: 8, 9: 10, 11: 12, 49: 50, 61: 80, 501: 600} {
		if got := niceTop(n); got != want {
			t.Errorf("the top of %d is %d, want %d", n, got, want)
		}
	}
	many := make([]int64, 60) // the highest three of which may be truncated
	for i := range many {
		many[i] = 90 + int64(i%10)
	}
	with := func(some ...int64) []int64 { return append(slices.Clone(many), some...) }
	for _, c := range []struct {
		what string
		sums []int64
		want int64
	}{
		{"nothing", nil, 1},
		{"one step alone", []int64{0, 100_000, 0}, 100_000},
		{"a spike of eight times", with(799), 800},
		{"a spike beyond that", with(120_000), 200},
		{"three of them", with(120_000, 120_000, 120_000), 200},
		{"so many that they are usual", with(120_000, 120_000, 120_000, 120_000), 120_000},
		{"few steps, and a spike", []int64{5, 0, 6, 100_000}, 12},
	} {
		if got := scaleOf(c.sums); got != c.want {
			t.Errorf("the scale of %s is %d, want %d", c.what, got, c.want)
		}
	}
}

var newYear = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestCharts(t *testing.T) {
	in := panel{Name: "In", Room: 100, Of: []series{{"enqueued", "enqueued", []int64{40, 5, 0}}}}
	out := panel{Name: "Out", Room: 100, Hangs: true, Of: []series{{"succeeded", "succeeded", []int64{30, 0, 20}}, {"dead", "dead", []int64{10, 0, 0}}}}
	c := chartOf("tasks", newYear, time.Minute, in, out, panel{Name: "Wrong", Room: 50, Of: []series{{"dead", "dead", []int64{10, 0, 0}}}})
	const zero = panelName + 100
	if first := c.Steps[0]; !reflect.DeepEqual(first.Pieces, []chartPiece{{State: "enqueued", Y: panelName, H: 100}, {State: "succeeded", Y: zero, H: 75}, {State: "dead", Y: zero + 75, H: 25},
		{State: "dead", Y: zero + 100 + panelName + panelGap + panelName, H: 50}}) || first.X != "0%" || first.Width != "33.333%" || first.Title != "1 Jan 00:00:00 UTC\nenqueued: 40\nsucceeded: 30\ndead: 10" {
		t.Errorf("the first step is %+v", first)
	}
	if last := c.Steps[2]; c.Steps[1].Running || !last.Running || last.X != "66.667%" || last.Title != "1 Jan 00:02:00 UTC, so far\nenqueued: 0\nsucceeded: 20\ndead: 0" || !slices.Equal(last.Values, []int64{0, 20, 0}) {
		t.Errorf("the step that runs is %+v", last)
	}
	if c.Label != "tasks: enqueued 45, succeeded 50, dead 10" || c.Empty || c.Cuts != nil || c.Unit() != "per minute" || len(c.Legend) != 3 {
		t.Errorf("got %+v", c)
	}
	if want := []chartText{{zero, "0"}, {panelName, "40"}, {zero - 50, "20"}, {zero + 100, "40"}, {zero + 50, "20"}}; !slices.Equal(c.Scale[:5], want) {
		t.Errorf("the scale of the pair is %+v, want %+v", c.Scale[:5], want)
	}
	if empty := chartOf("none", newYear, time.Minute); !empty.Empty || len(empty.Steps) != 0 || empty.Label != "none" {
		t.Errorf("nothing is drawn as %+v", empty)
	}
}

// TestChartsCutSpikes: a truncated bar reaches the edge, is visibly truncated and labelled with its value; of adjacent ones the highest is labelled.
func TestChartsCutSpikes(t *testing.T) {
	n := make([]int64, 60)
	for i := range n {
		n[i] = 10
	}
	n[2], n[3], n[57] = 900, 5000, 700
	for _, hangs := range []bool{false, true} {
		panels := []panel{{Room: 100, Of: []series{{"enqueued", "enqueued", n}}}}
		edge, y, inner := 0.0, 9.0, []float64{10, 6}
		if hangs {
			panels = []panel{{Room: 100, Of: []series{{"enqueued", "enqueued", nil}}}, {Room: 100, Hangs: true, Of: []series{{"succeeded", "succeeded", n}}}}
			edge, y, inner = 200, 198, []float64{194, 190}
		}
		c := chartOf("", newYear, time.Minute, panels...)
		p := c.Steps[3].Pieces[0]
		if p.H != 100 || p.Y != min(edge, 100) || !slices.Equal(p.Cut, inner) || c.Steps[4].Pieces[0].Cut != nil {
			t.Errorf("hangs %v: the spike is %+v", hangs, p)
		}
		if want := []chartCut{{"6.667%", "start", "5,000", y, 5000, 3}, {"95%", "end", "700", y, 700, 57}}; !slices.Equal(c.Cuts, want) {
			t.Errorf("hangs %v: what is written is %+v, want %+v", hangs, c.Cuts, want)
		}
	}
}

// TestChartsMergeSteps: charts have distinguishable bars of whole minutes, and everything that they show is counted.
func TestChartsMergeSteps(t *testing.T) {
	ones := make([]int64, 360)
	for i := range ones {
		ones[i] = 1
	}
	c := chartOf("", newYear.Add(-20*time.Second), 10*time.Second, panel{Room: 100, Of: []series{{"a", "a", ones}}})
	if len(c.Steps) != 60 || !c.Start.Equal(newYear) || c.Steps[0].Values[0] != 6 || c.Steps[59].Values[0] != 4 || !c.Steps[59].Running || c.Legend[0].N != 358 {
		t.Errorf("an hour by 10 s is %d steps from %v, the first of %d, the last of %d, %d in all", len(c.Steps), c.Start, c.Steps[0].Values[0], c.Steps[59].Values[0], c.Legend[0].N)
	}
	if c := chartOf("", newYear, 10*time.Second, panel{Of: []series{{"a", "a", ones[:30]}}}); len(c.Steps) != 30 || c.Unit() != "per 10 s" {
		t.Errorf("5 minutes are %d steps %s", len(c.Steps), c.Unit())
	}
	if c := chartOf("", newYear, 5*time.Minute, panel{Of: []series{{"a", "a", ones[:288]}}}); len(c.Steps) != 72 || c.Unit() != "per 20 min" || len(c.Ticks) != 5 || c.Ticks[0] != (chartTick{"16.667%", "2026-01-01T04:00:00Z", "04:00"}) {
		t.Errorf("a day is %d steps %s, with the ticks %+v", len(c.Steps), c.Unit(), c.Ticks)
	}
}

// TestChartsShowMarkers: markers are drawn at their time, and only the steps that they touch mention them.
func TestChartsShowMarkers(t *testing.T) {
	c := chartOf("", newYear, time.Minute, panel{Of: []series{{"a", "a", make([]int64, 10)}}})
	c.Marks = &chartMarks{}
	end := newYear.Add(10 * time.Minute)
	for _, m := range []admin.Marker{
		{Kind: admin.MarkerDeploy, Title: "web 2", Version: "2", At: newYear.Add(90 * time.Second)},
		{Kind: admin.MarkerIncident, Title: "down", At: newYear.Add(-time.Hour), EndedAt: newYear.Add(2 * time.Minute)},
		{Kind: admin.MarkerIncident, Title: "slow", Version: "v9", At: newYear.Add(9 * time.Minute)},
		{Kind: admin.MarkerNote, Title: "later", At: end},
	} {
		c.Marks.add(&c, &m, end, false)
	}
	var got []string
	for _, f := range c.Marks.Flags {
		got = append(got, f.Label+" "+f.X+" "+f.Width)
	}
	if want := []string{"deploy: web 2 15% ", "incident: down 0% 20%", "incident: slow v9, open 90% 10%"}; !slices.Equal(got, want) {
		t.Errorf("the flags are %q, want %q", got, want)
	}
	for i, want := range map[int]string{0: "incident: down", 1: "deploy: web 2\nincident: down", 2: "", 9: "incident: slow"} {
		if _, got, _ := strings.Cut(c.Steps[i].Title, "a: 0\n"); got != want {
			t.Errorf("step %d tells of %q, want %q", i, got, want)
		}
	}
}

package chart

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/format"
)

func TestSparklines(t *testing.T) {
	none := []int64{0, 0, 0, 0, 0}
	for _, c := range []struct {
		name string
		s    admin.QueueSeries
		want Spark
	}{
		{"nothing", admin.QueueSeries{In: none, Out: none, Failed: none, Succeeded: none, Poisoned: none},
			Spark{Label: "0 enqueued, 0 succeeded"}},
		{"success", admin.QueueSeries{In: none, Out: []int64{1, 1000, 1000, 0, 500}, Failed: []int64{0, 2, 1, 0, 9},
			Succeeded: []int64{1, 1000,
				1000, 0, 500}, Poisoned: none},
			Spark{Label: "0 enqueued, 2,501 succeeded, 12 attempts failed", Area: "M0 20v-1h1v-19h2v20h1v-10h1V20z",
				Failed: "M1 20h2v3h-2zM4 20h1v3h-1z"}},
		{"arrivals alone", admin.QueueSeries{In: []int64{0, 100, 50, 0, 0}, Out: none, Failed: none, Succeeded: none, Poisoned: none},
			Spark{Label: "150 enqueued, 0 succeeded", Came: "M0 20h1v-20h1v10h1v10h2"}},
		{"poison", admin.QueueSeries{In: none, Out: []int64{0, 0, 7, 0, 0}, Failed: []int64{0, 0, 7, 0, 0}, Succeeded: none,
			Poisoned: []int64{0, 0, 7, 0, 0}},
			Spark{Label: "0 enqueued, 0 succeeded, 7 attempts failed, 7 poisoned", Failed: "M2 20h1v3h-1z"}},
		{"cancelled", admin.QueueSeries{In: none, Out: []int64{0, 400, 0, 0, 0}, Failed: none, Succeeded: none, Poisoned: none},
			Spark{Label: "0 enqueued, 0 succeeded, 400 ended another way"}},
	} {
		c.s.Step, c.want.Width = time.Minute, 5
		c.want.Label += " in " + format.Duration(5*time.Minute)
		if got := *NewSpark(&c.s); got != c.want {
			t.Errorf("NewSpark of %s = %+v, want %+v", c.name, got, c.want)
		}
	}
	long := make([]int64, 60)
	long[58], long[59] = 3, 4
	if s := NewSpark(&admin.QueueSeries{Step: time.Minute, Out: long, Succeeded: long}); s.Width != 30 || s.Area != "M0 20h29v-20h1V20z" {
		t.Errorf("NewSpark of 60 steps = %+v", s)
	}
	if NewSpark(nil) != nil || NewSpark(&admin.QueueSeries{}) != nil {
		t.Error("NewSpark returned a chart for no data")
	}
}

func TestTrendsHaveLastHourInWords(t *testing.T) {
	for _, c := range []struct {
		hours []int64
		want  Trend
	}{
		{[]int64{0, 0, 0}, Trend{Label: "0 in the last hour, 0 in 3 hours", Width: 3}},
		{[]int64{4, 0, 2}, Trend{Label: "2 in the last hour, 6 in 3 hours", Width: 3, LastHour: 2, Area: "M0 20v-20h1v20h1v-10h1V20z"}},
		{[]int64{1, 1000000, 0}, Trend{Label: "0 in the last hour, 1,000,001 in 3 hours", Width: 3, Area: "M0 20v-1h1v-19h1v20h1V20z"}},
	} {
		if got := NewTrend(c.hours); got != c.want {
			t.Errorf("NewTrend(%v) = %+v, want %+v", c.hours, got, c.want)
		}
	}
}

func TestBarsHaveDescriptions(t *testing.T) {
	for step, want := range map[time.Duration]string{time.Second: "per second", 10 * time.Second: "per 10 s", time.Minute: "per minute",
		30 * time.Minute: "per 30 min", time.Hour: "per hour", 0: ""} {
		if got := stepWords(step); got != want {
			t.Errorf("stepWords(%v) = %q, want %q", step, got, want)
		}
	}
}

func TestChartScales(t *testing.T) {
	for n, want := range map[int64]int64{0: 1, 1: 1, 3: 3, 7: 8, 9: 10, 11: 12, 49: 50, 61: 80, 501: 600} {
		if got := niceTop(n); got != want {
			t.Errorf("niceTop(%d) = %d, want %d", n, got, want)
		}
	}
	many := make([]int64, 60) // the highest three may be truncated
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
	in := Panel{Name: "In", Height: 100, Of: []Series{{"enqueued", "enqueued", []int64{40, 5, 0}}}}
	out := Panel{Name: "Out", Height: 100, Hangs: true, Of: []Series{{"succeeded", "succeeded", []int64{30, 0, 20}},
		{"dead", "dead", []int64{10, 0, 0}}}}
	c := New("tasks", newYear, time.Minute, in, out, Panel{Name: "Wrong", Height: 50, Of: []Series{{"dead", "dead", []int64{10, 0, 0}}}})
	const zero = panelName + 100
	if first := c.Steps[0]; !reflect.DeepEqual(first.Pieces, []Piece{{State: "enqueued", Y: panelName, H: 100},
		{State: "succeeded", Y: zero,
			H: 75}, {State: "dead", Y: zero + 75, H: 25},
		{State: "dead", Y: zero + 100 + panelName + panelGap + panelName, H: 50}}) || first.X != "0%" || first.Width != "33.333%" ||
		first.Title != "1 Jan 00:00:00 UTC\nenqueued: 40\nsucceeded: 30\ndead: 10" {
		t.Errorf("the first step is %+v", first)
	}
	if last := c.Steps[2]; c.Steps[1].Running || !last.Running || last.X != "66.667%" ||
		last.Title != "1 Jan 00:02:00 UTC, so far\nenqueued: 0\nsucceeded: 20\ndead: 0" || !slices.Equal(last.Values, []int64{0, 20, 0}) {
		t.Errorf("the running step is %+v", last)
	}
	if c.Label != "tasks: enqueued 45, succeeded 50, dead 10" || c.Empty || c.Cuts != nil || c.Unit() != "per minute" ||
		len(c.Legend) != 3 {
		t.Errorf("the chart is %+v", c)
	}
	if want := []Text{{zero, "0"}, {panelName, "40"}, {zero - 50, "20"}, {zero + 100, "40"}, {zero + 50, "20"}}; !slices.Equal(c.Scale[:5],
		want) {
		t.Errorf("the scale of both panels is %+v, want %+v", c.Scale[:5], want)
	}
	if empty := New("none", newYear, time.Minute); !empty.Empty || len(empty.Steps) != 0 || empty.Label != "none" {
		t.Errorf("a chart without panels is %+v, want it empty", empty)
	}
}

// TestChartsCutSpikes: a truncated bar reaches the edge, is visibly truncated and labeled with its value. Of adjacent
// ones only the highest is labeled.
func TestChartsCutSpikes(t *testing.T) {
	n := make([]int64, 60)
	for i := range n {
		n[i] = 10
	}
	n[2], n[3], n[57] = 900, 5000, 700
	for _, hangs := range []bool{false, true} {
		panels := []Panel{{Height: 100, Of: []Series{{"enqueued", "enqueued", n}}}}
		edge, y, inner := 0.0, 9.0, []float64{10, 6}
		if hangs {
			panels = []Panel{{Height: 100, Of: []Series{{"enqueued", "enqueued", nil}}}, {Height: 100, Hangs: true,
				Of: []Series{{"succeeded", "succeeded", n}}}}
			edge, y, inner = 200, 198, []float64{194, 190}
		}
		c := New("", newYear, time.Minute, panels...)
		p := c.Steps[3].Pieces[0]
		if p.H != 100 || p.Y != min(edge, 100) || !slices.Equal(p.Cut, inner) || c.Steps[4].Pieces[0].Cut != nil {
			t.Errorf("hangs %v: the spike is %+v", hangs, p)
		}
		if want := []Cut{{"6.667%", "start", "5,000", y, 5000, 3}, {"95%", "end", "700", y, 700, 57}}; !slices.Equal(c.Cuts, want) {
			t.Errorf("hangs %v: the labels are %+v, want %+v", hangs, c.Cuts, want)
		}
	}
}

// TestChartsMergeSteps: charts have distinguishable bars of whole minutes, and everything that they show is counted.
func TestChartsMergeSteps(t *testing.T) {
	ones := make([]int64, 360)
	for i := range ones {
		ones[i] = 1
	}
	c := New("", newYear.Add(-20*time.Second), 10*time.Second, Panel{Height: 100, Of: []Series{{"a", "a", ones}}})
	if len(c.Steps) != 60 || !c.Start.Equal(newYear) || c.Steps[0].Values[0] != 6 || c.Steps[59].Values[0] != 4 || !c.Steps[59].Running ||
		c.Legend[0].N != 358 {
		t.Errorf("an hour of 10 s steps became %d steps from %v, with %d in the first, %d in the last and %d in total",
			len(c.Steps), c.Start, c.Steps[0].Values[0], c.Steps[59].Values[0], c.Legend[0].N)
	}
	if c := New("", newYear, 10*time.Second, Panel{Of: []Series{{"a", "a", ones[:30]}}}); len(c.Steps) != 30 || c.Unit() != "per 10 s" {
		t.Errorf("5 minutes became %d steps %s, want 30 per 10 s", len(c.Steps), c.Unit())
	}
	if c := New("", newYear, 5*time.Minute, Panel{Of: []Series{{"a", "a", ones[:288]}}}); len(c.Steps) != 72 || c.Unit() != "per 20 min" ||
		len(c.Ticks) != 5 || c.Ticks[0] != (Tick{"16.667%", "2026-01-01T04:00:00Z", "04:00"}) {
		t.Errorf("a day became %d steps %s, with the ticks %+v", len(c.Steps), c.Unit(), c.Ticks)
	}
}

// TestChartsShowMarkers: markers are drawn at their time, and only the steps that they touch mention them.
func TestChartsShowMarkers(t *testing.T) {
	c := New("", newYear, time.Minute, Panel{Of: []Series{{"a", "a", make([]int64, 10)}}})
	c.Marks = &Marks{}
	end := newYear.Add(10 * time.Minute)
	for _, m := range []admin.Marker{
		{Kind: admin.MarkerDeploy, Title: "web 2", Version: "2", At: newYear.Add(90 * time.Second)},
		{Kind: admin.MarkerIncident, Title: "down", At: newYear.Add(-time.Hour), EndedAt: newYear.Add(2 * time.Minute)},
		{Kind: admin.MarkerIncident, Title: "slow", Version: "v9", At: newYear.Add(9 * time.Minute)},
		{Kind: admin.MarkerNote, Title: "later", At: end},
	} {
		c.Mark(&m, false)
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
			t.Errorf("step %d mentions %q, want %q", i, got, want)
		}
	}
}

package stats

import (
	"fmt"
	"testing"
	"time"
)

// A trend has what happened in the window, each event in its step, for every window.
func TestTrend(t *testing.T) {
	begin := time.Unix(1_800_000_000, 0) // a step boundary of every window
	for _, c := range []struct {
		window Window
		step   time.Duration
		steps  int
	}{{Minutes2, 2 * time.Second, 60}, {Minutes5, 10 * time.Second, 30}, {Hour, time.Minute, 60}, {Day, 30 * time.Minute, 48}} {
		b := New(begin)
		event := func(steps int, of Counter) {
			b.Record(begin.Add(time.Duration(steps)*c.step+c.step-time.Second), []Event{{Namespace: "n", Queue: "q", Type: "t",
				Counts: Set(0).With(of), Ran: -1}})
		}
		event(0, Enqueued)
		event(1, Enqueued)
		event(1, Failed)
		event(2, Succeeded)
		event(2, Poisoned)
		event(c.steps, Replayed)
		got := b.Trends(begin.Add(time.Duration(c.steps)*c.step+c.step-time.Second), "n", []string{"q", "none"}, c.window)
		if c.window.TrendStep() != c.step || len(got[0].Steps) != c.steps || len(got[1].Steps) != c.steps {
			t.Fatalf("%v: %d and %d steps of %v, want %d of %v", time.Duration(c.window), len(got[0].Steps), len(got[1].Steps),
				c.window.TrendStep(), c.steps, c.step)
		}
		want := make([]Flow, c.steps) // the first is too old
		want[0], want[1], want[c.steps-1] = Flow{In: 1, Failed: 1}, Flow{Out: 2, Failed: 1, Succeeded: 1, Poisoned: 1}, Flow{In: 1}
		if g, w := fmt.Sprint(got[0].Steps), fmt.Sprint(want); g != w {
			t.Errorf("%v: %s, want %s", time.Duration(c.window), g, w)
		}
		if g, w := got[0].Last*int64(c.step/time.Second), begin.Unix()+int64(c.steps)*int64(c.step/time.Second); g != w {
			t.Errorf("%v: the last step begins at %d, want %d", time.Duration(c.window), g, w)
		}
		if g, w := fmt.Sprint(got[1].Steps), fmt.Sprint(make([]Flow, c.steps)); g != w {
			t.Errorf("%v: a queue without events has %s", time.Duration(c.window), g)
		}
	}
}

// Counts of nodes whose clocks differ are added step by step.
func TestTrendsAdd(t *testing.T) {
	a := Trend{Last: 10, Steps: []Flow{{In: 1}, {In: 2}, {In: 3}}}
	for _, c := range []struct {
		o    Trend
		want string
	}{
		{Trend{Last: 10, Steps: []Flow{{Out: 1, Succeeded: 1}, {Out: 2, Poisoned: 2}, {Failed: 3}}},
			"{10 [{1 1 0 1 0} {2 2 0 0 2} {3 0 3 0 0}]}"},
		{Trend{Last: 11, Steps: []Flow{{Out: 1}, {Out: 2}, {Out: 3}}}, "{11 [{2 1 0 0 0} {3 2 0 0 0} {0 3 0 0 0}]}"},
		{Trend{Last: 9, Steps: []Flow{{Out: 1}, {Out: 2}, {Out: 3}}}, "{10 [{1 2 0 0 0} {2 3 0 0 0} {3 0 0 0 0}]}"},
		{Trend{}, "{10 [{1 0 0 0 0} {2 0 0 0 0} {3 0 0 0 0}]}"},
	} {
		sum := Trend{Last: a.Last, Steps: append([]Flow(nil), a.Steps...)}
		sum.Add(c.o)
		if got := fmt.Sprint(sum); got != c.want {
			t.Errorf("%v plus %v = %s, want %s", a, c.o, got, c.want)
		}
	}
}

package chart

import (
	"math"
	"slices"
	"time"
)

const (
	// mostSteps is the maximum number of bars in a chart: more would be indistinguishable on a phone.
	mostSteps = 72
	// mostTicks is the maximum number of labels on an axis.
	mostTicks = 6
	// flattens is the ratio of the highest bar to the usual ones above which the highest are truncated. Otherwise the rest
	// would be a flat line.
	flattens = 8
)

// chartSpans are the possible lengths of steps and intervals between ticks.
var chartSpans = []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 20 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour}

// merge combines steps into longer ones that begin at whole minutes or hours. It drops the first one if it is
// incomplete, as its bar would be misleadingly low.
func merge(panels []Panel, start time.Time, step time.Duration) ([]Panel, time.Time, time.Duration) {
	n := 0
	for _, p := range panels {
		for _, s := range p.Of {
			n = max(n, len(s.N))
		}
	}
	at := slices.IndexFunc(chartSpans, func(d time.Duration) bool {
		return step > 0 && d >= step && d%step == 0 && n*int(step) <= mostSteps*int(d)
	})
	if at < 0 || chartSpans[at] == step {
		return panels, start, step
	}
	long := chartSpans[at]
	first := start.Truncate(long)
	skip := 0
	if !first.Equal(start) {
		first = first.Add(long)
		skip = int(first.Sub(start) / step)
	}
	if skip >= n {
		return panels, start, step
	}
	out := make([]Panel, len(panels))
	for i, p := range panels {
		out[i] = p
		out[i].Of = make([]Series, len(p.Of))
		for j, s := range p.Of {
			sums := make([]int64, (n-skip-1)/int(long/step)+1)
			for k := skip; k < n; k++ {
				sums[(k-skip)/int(long/step)] += valueAt(s.N, k)
			}
			out[i].Of[j] = Series{s.State, s.Word, sums}
		}
	}
	return out, first, long
}

// ticks labels points in time.
func (c *Chart) ticks() {
	whole := time.Duration(len(c.Steps)) * c.step
	at := slices.IndexFunc(chartSpans, func(d time.Duration) bool { return whole <= mostTicks*d })
	if whole == 0 || at < 0 {
		return
	}
	for t := c.Start.Truncate(chartSpans[at]); t.Before(c.Start.Add(whole)); t = t.Add(chartSpans[at]) {
		if x := float64(t.Sub(c.Start)) / float64(whole); x >= 0.03 && x <= 0.97 { // near the edges it would be cut off
			c.Ticks = append(c.Ticks, Tick{percent(x), t.UTC().Format(time.RFC3339), t.UTC().Format("15:04")})
		}
	}
}

// scaleOf returns the value at the edge of a panel. The usual values are all but the highest twentieth: if the highest
// value exceeds them by far, the scale fits the usual ones.
func scaleOf(sums []int64) int64 {
	values := slices.DeleteFunc(slices.Clone(sums), func(n int64) bool { return n == 0 })
	if len(values) == 0 {
		return 1
	}
	slices.Sort(values)
	top := values[len(values)-1]
	if len(values) > 1 {
		if usual := values[len(values)-1-max(1, len(values)/20)]; top/flattens > usual {
			return niceTop(2 * usual)
		}
	}
	return niceTop(top)
}

// niceTop returns the next round number, usually one that can be halved.
func niceTop(n int64) int64 {
	if n <= 6 {
		return max(n, 1)
	}
	for unit := int64(1); unit < math.MaxInt64/100; unit *= 10 {
		for _, f := range []int64{8, 10, 12, 16, 20, 24, 30, 40, 50, 60} {
			if f*unit >= n {
				return f * unit
			}
		}
	}
	return n
}

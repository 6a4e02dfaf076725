package chart

import (
	"fmt"
	"math"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/format"
)

// Histogram shows the distribution of durations: a bar for each bucket on a logarithmic axis, and lines at quantiles.
// Positions are percentages of the width or height, so that text is not stretched.
type Histogram struct {
	Label string
	Bars  []HistogramBar
	Marks []HistogramMark
	Ticks []HistogramTick
	Count int64
	Top   int64 // count of the highest bar
}

// HistogramBar is the bar of a bucket.
type HistogramBar struct {
	X, Width, Y, Height string
	Title               string
}

// HistogramMark is a line at a quantile. Every label is on a row of its own, since marks may be close together.
type HistogramMark struct {
	X, Label, Class string
	Y               int // base line of the label, in pixels
	After           bool
}

// HistogramTick is a label on the axis.
type HistogramTick struct{ X, Label, Anchor string }

const (
	// leastBars is the minimum number of bars on an axis, so that a few bars are not too wide. The axis starts at 1 ms at the earliest.
	leastBars = 16
	// lastBound is the position of the longest bound, 26 h.
	lastBound = 53
	// markLine is the height of a mark's label, in pixels.
	markLine = 15
)

// axisTimes are the possible labels of the axis.
var axisTimes = []time.Duration{time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second,
	5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 5 * time.Hour, 12 * time.Hour, 24 * time.Hour}

// histogramPlace returns the position of a duration, in buckets from 1 ms: there are two per doubling.
func histogramPlace(d time.Duration) float64 {
	return 2 * math.Log2(max(float64(d)/float64(time.Millisecond), 1))
}

// NewHistogram draws buckets with their known quantiles.
func NewHistogram(label string, buckets []admin.HistogramBucket, l admin.Latency) Histogram {
	h := Histogram{Label: label, Count: l.Count}
	if len(buckets) == 0 || l.Count == 0 {
		return h
	}
	for _, b := range buckets {
		h.Top = max(h.Top, b.Count)
	}
	ends := bucketEnds(buckets)
	first, bars := axisOf(ends[0], len(buckets))
	at := func(place float64) string { return percent((place - float64(first) + 1) / float64(bars)) }
	for i, b := range buckets {
		if b.Count == 0 {
			continue
		}
		height := max(float64(b.Count)/float64(h.Top), 0.01)
		h.Bars = append(h.Bars, HistogramBar{X: at(float64(ends[i] - 1)), Width: percent(1 / float64(bars)), Y: percent(1 - height),
			Height: percent(height), Title: fmt.Sprintf("%s\n%s, %s %%", bucketText(ends[i], b.UpTo == 0), format.Number(b.Count),
				format.Decimal(100*float64(b.Count)/float64(l.Count)))})
	}
	for i, q := range []struct {
		word string
		d    time.Duration
	}{{"p50", l.P50}, {"p95", l.P95}, {"p99", l.P99}} {
		place := min(histogramPlace(q.d), float64(ends[len(ends)-1]))
		h.Marks = append(h.Marks, HistogramMark{X: at(place), Label: q.word + " " + format.Duration(q.d), Class: q.word,
			Y: (i + 1) * markLine, After: (place-float64(first)+1)/float64(bars) < 0.72})
	}
	h.Ticks = axisTicks(first, bars, at)
	return h
}

// bucketEnds returns the positions where buckets end. The very first bucket ends at 0, and the one without a bound ends one past the last.
func bucketEnds(buckets []admin.HistogramBucket) []int {
	ends := make([]int, len(buckets))
	for i, b := range buckets {
		switch {
		case b.UpTo > 0:
			ends[i] = int(math.Round(histogramPlace(b.UpTo)))
		case i > 0:
			ends[i] = ends[i-1] + 1
		default:
			ends[i] = lastBound + 1
		}
	}
	return ends
}

// axisOf returns the end of an axis's first bar and the number of bars: at least leastBars, with the buckets in the middle.
func axisOf(first, buckets int) (from, bars int) {
	bars = max(buckets+2, leastBars)
	return max(first-(bars-buckets)/2, 0), bars
}

func axisTicks(first, bars int, at func(float64) string) (ticks []HistogramTick) {
	var shown []time.Duration
	for _, d := range axisTimes {
		if place := histogramPlace(d); place >= float64(first-1) && place <= float64(first+bars-1) {
			shown = append(shown, d)
		}
	}
	every := (len(shown) + mostTicks - 1) / mostTicks
	for i := 0; i < len(shown); i += max(every, 1) {
		place, anchor := histogramPlace(shown[i]), "middle"
		switch part := (place - float64(first) + 1) / float64(bars); {
		case part < 0.04:
			anchor = "start"
		case part > 0.94:
			anchor = "end"
		}
		ticks = append(ticks, HistogramTick{X: at(place), Label: format.Duration(shown[i]), Anchor: anchor})
	}
	return ticks
}

// bucketText returns the range of a bucket.
func bucketText(end int, open bool) string {
	bound := func(place int) string {
		return format.Duration(time.Duration(math.Exp2(float64(place)/2) * float64(time.Millisecond)))
	}
	switch {
	case open:
		return "over " + bound(end-1)
	case end == 0:
		return "up to 1 ms"
	}
	return bound(end-1) + " to " + bound(end)
}

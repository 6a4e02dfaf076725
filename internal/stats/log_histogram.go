package stats

import (
	"math/bits"
	"slices"
	"time"
)

// logBuckets is the number of buckets of a LogHistogram: one up to 1 ms, two for each doubling up to 26 h, and one beyond.
const logBuckets = 55

// LogBounds are the upper bounds of the buckets, each the previous one times the square root of 2. One more bucket holds what exceeds the
// last.
var LogBounds = func() (bounds [logBuckets - 1]time.Duration) {
	const root = 1.4142135623730951
	for i := range bounds {
		bounds[i] = time.Millisecond << (i / 2)
		if i%2 == 1 {
			bounds[i] = time.Duration(float64(bounds[i]) * root)
		}
	}
	return bounds
}()

// logBucketOf returns the bucket of a duration: the highest bit selects the doubling, a comparison its half.
func logBucketOf(d time.Duration) int {
	if d <= time.Millisecond {
		return 0
	}
	i := 2*bits.Len64(uint64(d-1)/uint64(time.Millisecond)) - 1 // #nosec G115 -- above 0
	switch {
	case i >= logBuckets-1:
		return logBuckets - 1
	case d > LogBounds[i]:
		return i + 1
	}
	return i
}

// LogHistogram is a histogram of durations, about twice as fine as a Histogram.
type LogHistogram struct {
	_      struct{} `cbor:",toarray"`
	N      [logBuckets]uint64
	Sum    time.Duration
	Extent extent
}

// Add adds the durations of o.
func (h *LogHistogram) Add(o *LogHistogram) {
	for i, n := range o.N {
		h.N[i] += n
	}
	h.Sum += o.Sum
	h.Extent.add(o.Extent.of(o.Count()))
}

// Count returns the number of durations.
func (h *LogHistogram) Count() uint64 { return countOf(h.N[:]) }

// Mean returns their mean; 0 if there are none.
func (h *LogHistogram) Mean() time.Duration { return meanOf(h.Sum, h.Count()) }

// Quantile is like Histogram.Quantile.
func (h *LogHistogram) Quantile(q float64) time.Duration {
	e := h.Extent.of(h.Count())
	return min(max(quantileOf(h.N[:], LogBounds[:], q), e.Least), e.Most)
}

// Shown returns the buckets from the first to the last that is not empty: the index of the first, and their counts.
func (h *LogHistogram) Shown() (first int, n []uint64) {
	first = slices.IndexFunc(h.N[:], func(n uint64) bool { return n > 0 })
	if first < 0 {
		return 0, nil
	}
	last := first
	for i := first; i < len(h.N); i++ {
		if h.N[i] > 0 {
			last = i
		}
	}
	return first, h.N[first : last+1]
}

// logCounts is a LogHistogram for one minute.
type logCounts struct {
	n      [logBuckets]uint32
	sum    time.Duration
	extent extent
}

func (c *logCounts) observe(d time.Duration) {
	c.n[logBucketOf(d)]++
	c.sum += d
	c.extent.observe(d)
}

func (c *logCounts) addTo(h *LogHistogram) {
	for i, n := range c.n {
		h.N[i] += uint64(n)
	}
	h.Sum += c.sum
	h.Extent.add(c.extent)
}

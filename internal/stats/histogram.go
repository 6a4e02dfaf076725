package stats

import (
	"math"
	"sort"
	"time"
)

// Bounds are the upper bounds of a histogram's buckets; one more bucket holds what exceeds the last.
var Bounds = [...]time.Duration{time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond,
	25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second,
	2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute,
	10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour, 24 * time.Hour}

// buckets is the number of buckets of a histogram.
const buckets = len(Bounds) + 1

// bucketOf returns the bucket of a duration.
func bucketOf(d time.Duration) int {
	return sort.Search(len(Bounds), func(i int) bool { return d <= Bounds[i] })
}

// extent is the shortest and the longest of some durations, so that no quantile lies beyond them. A duration of 0 counts as 1
// ns: 0 means that there are none.
type extent struct {
	_           struct{} `cbor:",toarray"`
	Least, Most time.Duration
}

func (e *extent) observe(d time.Duration) {
	d = max(d, 1)
	e.add(extent{Least: d, Most: d})
}

func (e *extent) add(o extent) {
	if o.Least != 0 && (e.Least == 0 || o.Least < e.Least) {
		e.Least = o.Least
	}
	e.Most = max(e.Most, o.Most)
}

// of returns the extent of n durations: any, if it is unknown, as in what an older node sends.
func (e extent) of(n uint64) extent {
	if n > 0 && e.Least == 0 {
		return extent{Least: 1, Most: math.MaxInt64}
	}
	return e
}

// stepHistogram is a histogram of the events of one step of time.
type stepHistogram struct {
	_      struct{} `cbor:",toarray"`
	N      [buckets]uint32
	Sum    time.Duration
	Extent extent
}

func (s *stepHistogram) observe(bucket int, d time.Duration) {
	s.N[bucket]++
	s.Sum += d
	s.Extent.observe(d)
}

func (s *stepHistogram) add(o *stepHistogram) {
	for i, n := range o.N {
		s.N[i] += n
	}
	s.Sum += o.Sum
	s.Extent.add(o.Extent)
}

// Histogram is a histogram of durations.
type Histogram struct {
	Buckets [buckets]uint64
	Sum     time.Duration
	Extent  extent
}

func (h *Histogram) observe(bucket int, d time.Duration) {
	h.Buckets[bucket]++
	h.Sum += d
	h.Extent.observe(d)
}

func (h *Histogram) addSpread(s *stepHistogram) {
	for i, n := range s.N {
		h.Buckets[i] += uint64(n)
	}
	h.Sum += s.Sum
	h.Extent.add(s.Extent)
}

// Add adds the durations of o.
func (h *Histogram) Add(o *Histogram) {
	for i, n := range o.Buckets {
		h.Buckets[i] += n
	}
	h.Sum += o.Sum
	h.Extent.add(o.Extent.of(o.Count()))
}

// Count returns the number of durations.
func (h *Histogram) Count() uint64 { return countOf(h.Buckets[:]) }

func countOf(buckets []uint64) (n uint64) {
	for _, in := range buckets {
		n += in
	}
	return n
}

// Mean returns the mean duration; 0 if there are none.
func (h *Histogram) Mean() time.Duration { return meanOf(h.Sum, h.Count()) }

func meanOf(sum time.Duration, n uint64) time.Duration {
	if n == 0 {
		return 0
	}
	return sum / time.Duration(n) // #nosec G115 -- a count
}

// Quantile returns about the duration that a fraction q of all, 0 to 1, does not exceed, interpolating within its
// bucket and between the least and the most of all. It returns 0 if there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	e := h.Extent.of(h.Count())
	return min(max(quantileOf(h.Buckets[:], Bounds[:], q), e.Least), e.Most)
}

// quantileOf returns a quantile of buckets, of which there is one more than bounds: the last bound if it lies beyond.
func quantileOf(buckets []uint64, bounds []time.Duration, q float64) time.Duration {
	rank := q * float64(countOf(buckets))
	if rank == 0 {
		return 0
	}
	below := 0.0
	for i, n := range buckets {
		in := float64(n)
		if below+in < rank || n == 0 {
			below += in
			continue
		}
		if i == len(bounds) {
			break
		}
		from := time.Duration(0)
		if i > 0 {
			from = bounds[i-1]
		}
		return from + time.Duration((rank-below)/in*float64(bounds[i]-from))
	}
	return bounds[len(bounds)-1]
}

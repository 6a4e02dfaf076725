package bench

import (
	"math/bits"
	"sync"
	"time"
)

// histogram counts latencies in buckets whose width is at most 1/64 of their lower bound, as in HdrHistogram: to record a latency costs one
// addition, however many there are.
type histogram struct {
	mu     sync.Mutex
	counts [64 * subBuckets]int64
	n      int64
	max    time.Duration
}

const (
	subBits    = 6
	subBuckets = 1 << subBits
)

func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < subBuckets {
		return int(v)
	}
	shift := bits.Len64(v) - subBits - 1
	return (shift+1)*subBuckets + int(v>>shift) - subBuckets
}

// bucketEnd returns the largest value in a bucket.
func bucketEnd(i int) time.Duration {
	if i < subBuckets {
		return time.Duration(i)
	}
	shift := i/subBuckets - 1
	return time.Duration((uint64(i%subBuckets+subBuckets)+1)<<shift - 1)
}

func (h *histogram) record(d time.Duration) {
	h.mu.Lock()
	h.counts[bucketOf(d)]++
	h.n++
	h.max = max(h.max, d)
	h.mu.Unlock()
}

func (h *histogram) add(other *histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.n += other.n
	h.max = max(h.max, other.max)
}

// at returns the value at quantile q.
func (h *histogram) at(q float64) time.Duration {
	want := int64(q * float64(h.n))
	for i, n := range h.counts {
		if want -= n; want < 0 {
			return min(bucketEnd(i), h.max)
		}
	}
	return h.max
}

// percentiles are latencies in milliseconds.
type percentiles struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

func (h *histogram) percentiles() *percentiles {
	if h.n == 0 {
		return nil
	}
	ms := func(d time.Duration) float64 { return float64(d.Round(time.Microsecond)) / float64(time.Millisecond) }
	return &percentiles{ms(h.at(0.5)), ms(h.at(0.9)), ms(h.at(0.99)), ms(h.at(0.999)), ms(h.max)}
}

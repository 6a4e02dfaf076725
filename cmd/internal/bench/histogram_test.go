package bench

import (
	"testing"
	"time"
)

func TestHistogram(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 63, 64, 65, 1000, 123456, time.Second, time.Hour, 1<<62 + 12345} {
		i := bucketOf(d)
		end := bucketEnd(i)
		if end < d || float64(end-d) > float64(d)/subBuckets {
			t.Errorf("the bucket of %d ends at %d, want at most 1/%d above", d, end, subBuckets)
		}
		if i > 0 && bucketEnd(i-1) >= d {
			t.Errorf("%d is in bucket %d, but the one below ends at %d", d, i, bucketEnd(i-1))
		}
	}
	var h histogram
	for i := range 1000 {
		h.record(time.Duration(i+1) * time.Millisecond)
	}
	for _, c := range []struct {
		q    float64
		want time.Duration
	}{{0.5, 501 * time.Millisecond}, {0.99, 991 * time.Millisecond}, {1, time.Second}} {
		if got := h.at(c.q); got < c.want || got > c.want+c.want/subBuckets {
			t.Errorf("at(%v) = %v, want %v", c.q, got, c.want)
		}
	}
}

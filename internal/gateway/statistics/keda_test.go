package statistics

import (
	"testing"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/stats"
)

// A queue drains as fast as its outflow exceeds its inflow. An empty one is drained, and nothing is reported for unknown rates.
func TestDrains(t *testing.T) {
	rates := func(in, out uint32) stats.Rates { return stats.Rates{Enqueued: in, Succeeded: out} }
	for _, c := range []struct {
		b     stats.Brief
		depth *pawlv1.Depth
		want  float64 // -1: unknown
	}{
		{stats.Brief{}, &pawlv1.Depth{}, -1}, {stats.Brief{Span: time.Minute, Rates: rates(60, 60)}, &pawlv1.Depth{}, 0}, {stats.Brief{Span: time.Minute, Rates: rates(60, 120)}, &pawlv1.Depth{Ready: 3, Claimed: 2}, 5},
		{stats.Brief{Span: time.Minute, Rates: rates(60, 60)}, &pawlv1.Depth{Ready: 1}, -1}, {stats.Brief{Span: time.Minute, Rates: rates(60, 59)}, &pawlv1.Depth{Ready: 1}, -1},
	} {
		q := &pawlv1.Queue{Depth: c.depth}
		setRates(q, &c.b)
		if got := q.DrainSeconds; (got == nil) != (c.want < 0) || got != nil && *got != c.want || (q.Rates == nil) != (c.b.Span == 0) {
			t.Errorf("rates %+v with depth %v: queue %v", c.b.Rates, c.depth, q)
		}
	}
}

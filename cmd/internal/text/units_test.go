package text

import (
	"math"
	"testing"
	"time"
)

func TestSpans(t *testing.T) {
	for _, c := range []struct {
		d               time.Duration
		span, per, days string
	}{
		{0, "0s", "", ""},
		{30 * time.Second, "30s", "30s", "30s"},
		{time.Hour, "60m", "1h", "1h"},
		{90 * time.Minute, "90m", "1h30m", "1h30m"},
		{time.Hour + time.Second, "60m", "1h0m1s", "1h0m1s"},
		{14 * 24 * time.Hour, "14d", "336h", "14d"},
		{250 * time.Millisecond, "250ms", "250ms", "250ms"},
		{90*24*time.Hour - time.Second, "90d", "2159h59m59s", "2159h59m59s"},
		{89*24*time.Hour + 11*time.Hour, "89d", "2147h", "2147h"},
		{48*time.Hour - time.Minute, "2d", "47h59m", "47h59m"},
		{2*time.Hour - time.Second, "2h", "1h59m59s", "1h59m59s"},
		{2*time.Minute - time.Millisecond, "2m", "1m59.999s", "1m59.999s"},
		{time.Second - time.Microsecond, "1s", "999.999ms", "999.999ms"},
		{100 * 365 * 24 * time.Hour, "36500d", "876000h", "36500d"},
		{math.MaxInt64, "106751d", "2562047h47m16.854775807s", "2562047h47m16.854775807s"},
	} {
		if Span(c.d) != c.span || Period(c.d) != c.per || Days(c.d) != c.days {
			t.Errorf("%v: span %q, period %q, days %q, want %q, %q, %q", c.d, Span(c.d), Period(c.d), Days(c.d), c.span, c.per, c.days)
		}
	}
}

package ui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/admin"
)

func TestChangesSinceADeploy(t *testing.T) {
	period := func(rate, share float64, p95 time.Duration, runs int64) admin.TypePeriod {
		return admin.TypePeriod{Length: time.Hour, Rates: admin.QueueRates{In: rate, Out: rate}, FailureRate: share,
			Totals: admin.EventCounts{Succeeded: runs}, Run: admin.Latency{Count: runs, P50: p95 / 2, P95: p95}}
	}
	for _, c := range []struct {
		before, after admin.TypePeriod
		want          string
	}{
		{period(10, 0.01, time.Second, 900), period(12, 0.031, 2*time.Second, 900),
			"+20 %|+20 %|+2.1 points worse|+100 % worse|+100 % worse"},
		{period(10, 0.5, 2*time.Second, 90), period(10, 0.25, time.Second, 90),
			"the same|the same|−25 points better|−50 % better|−50 % better"},
		// with 9 runs each, that may be chance
		{period(10, 0.5, time.Second, 9), period(10, 0.25, time.Second, 9), "the same|the same|−25 points|the same|the same"},
		{period(10, 0, time.Second, 9), period(10, 0, 1100*time.Millisecond, 9), "the same|the same|the same|+10 %|+10 %"},
		{period(0, 0, 0, 0), period(1, 0.1, time.Second, 9), "new|new|–|–|–"},
		{period(1, 0.1, time.Second, 9), period(0, 0, 0, 0), "−100 %|−100 %|–|–|–"},
	} {
		var got []string
		for _, r := range deployOf(&admin.Marker{}, &admin.Comparison{Before: c.before, After: c.after}).Rows {
			got = append(got, strings.TrimSpace(fmt.Sprint(r.Change, " ", r.Class)))
		}
		if text := strings.Join(got, "|"); text != c.want {
			t.Errorf("comparing %+v to %+v: got %s, want %s", c.before, c.after, text, c.want)
		}
	}
	if deployOf(nil, nil) != nil || deployOf(&admin.Marker{}, nil).Rows != nil {
		t.Error("deployOf compares something without a deploy, or too early")
	}
}

package ui

import (
	"testing"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/pawltype"
)

func TestDurationsReadAlike(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 s", 40 * time.Microsecond: "40 µs", 1500 * time.Microsecond: "2 ms", 48_700 * time.Millisecond: "48.7 s", 69 * time.Second: "1 min 9 s", 5 * time.Minute: "5 min",
		90 * time.Minute: "1 h 30 min", 24 * time.Hour: "1 day", 27 * time.Hour: "1 day 3 h", 14 * 24 * time.Hour: "14 days", -3 * time.Second: "−3 s",
	} {
		if got := durationText(d); got != want {
			t.Errorf("%v reads %q, want %q", d, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		400 * time.Millisecond: "0 s", 59_600 * time.Millisecond: "1 min", 119 * time.Minute: "2 h", 14*24*time.Hour - time.Second: "14 days",
	} {
		if got := coarse(d); got != want {
			t.Errorf("%v is about %q, want %q", d, got, want)
		}
	}
	for d, want := range map[time.Duration]string{600 * time.Microsecond: "+0.6 ms", -7100 * time.Microsecond: "−7.1 ms", 0: "0 ms", -2 * time.Second: "−2 s"} {
		if got := offsetText(d); got != want {
			t.Errorf("a clock off by %v reads %q, want %q", d, got, want)
		}
	}
}

func TestWhatWasNotMeasuredIsADash(t *testing.T) {
	if got := medianText(admin.Latency{}); got != "–" {
		t.Errorf("what never happened took %s", got)
	}
	if got := medianText(admin.Latency{Count: 3, P50: time.Millisecond, P95: 70 * time.Second}); got != "1 ms · 1 min 10 s" {
		t.Errorf("the median reads %s", got)
	}
	if got := failedText(&admin.Stats{}); got != "–" {
		t.Errorf("of no attempts failed %s", got)
	}
	if got := failedText(&admin.Stats{Totals: admin.EventCounts{Succeeded: 2}}); got != "0 %" {
		t.Errorf("of two good attempts failed %s", got)
	}
	for text, want := range map[string]string{"queue q1 has 100001 ready tasks, and no worker takes it": "queue q1 has 100,001 ready tasks, and no worker takes it",
		"since 2026-01-02 10:00:00": "since 2026-01-02 10:00:00", "999 tasks": "999 tasks"} {
		if got := groupDigits(text); got != want {
			t.Errorf("%q reads %q, want %q", text, got, want)
		}
	}
}

// TestFieldsReadWhatTheyHold: a form that nobody changes submits the values it was filled with.
func TestFieldsReadWhatTheyHold(t *testing.T) {
	for _, d := range []time.Duration{time.Millisecond, 90 * time.Second, 20 * time.Minute, 2 * time.Hour, 3*time.Hour + time.Minute, 36 * time.Hour, 14 * 24 * time.Hour, 1500 * time.Millisecond} {
		if got, err := humanize.Duration(fieldDuration(d)); err != nil || got != d {
			t.Errorf("%v is held as %q, which reads as %v %v", d, fieldDuration(d), got, err)
		}
	}
	if fieldDuration(0) != "" || fieldDuration(pawltype.NoWait) != "0s" {
		t.Errorf("none is held as %q, no wait as %q", fieldDuration(0), fieldDuration(pawltype.NoWait))
	}
}

func TestTimesToCome(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for at, want := range map[time.Time]string{now.Add(14 * 24 * time.Hour): "6 Dec 12:00 UTC", now.Add(60 * 24 * time.Hour): "21 Jan 2027", now.Add(23 * time.Hour): "23 Nov 11:00 UTC", now.Add(11 * time.Hour): "23:00 UTC",
		now.Add(-13 * time.Hour): "21 Nov 23:00 UTC", now.Add(-11 * time.Hour).In(time.FixedZone("", -7200)): "01:00 UTC"} {
		if got := dayFrom(at, now); got != want {
			t.Errorf("%v reads %q, want %q", at, got, want)
		}
	}
	for away, want := range map[time.Duration]string{100 * time.Millisecond: "now", -time.Second: "1 s ago", 11 * time.Hour: "in 11 h", 23*time.Hour + 59*time.Minute: "23 Nov 11:59Z", -13 * time.Hour: "21 Nov 23:00Z", -400 * 24 * time.Hour: "18 Oct 2025"} {
		if got := momentOf(now.Add(away), now).Text; got != want {
			t.Errorf("in %v reads %q, want %q", away, got, want)
		}
	}
	midnight := time.Date(2026, 11, 22, 0, 10, 0, 0, time.UTC)
	for away, want := range map[time.Duration]string{-59 * time.Minute: "59 min ago", -time.Hour: "21 Nov 23:10Z"} {
		if got := momentOf(midnight.Add(away), midnight).Text; got != want {
			t.Errorf("soon after midnight %v reads %q, want %q", away, got, want)
		}
	}
	if today, other := clockText(now, now), clockText(now, now.Add(12*time.Hour)); today != "12:00:00 UTC" || other != "22 Nov 12:00:00 UTC" {
		t.Errorf("a chart begins at %q today and %q another day", today, other)
	}
}

func TestSentencesAreTidied(t *testing.T) {
	for said, want := range map[string]string{
		"node n2 was last seen 1m53s ago":          "node n2 was last seen 1 min 53 s ago",
		"for 10s at least":                         "for 10 s at least",
		"due in 2h0m0s, at 2026-11-22T14:50:03.8Z": "due in 2 h, at 2026-11-22 14:50:03 UTC",
		"(250ms)":                             "(250 ms)",
		`queue "a-5s" and "10s" wait, v1.2s5`: `queue "a-5s" and "10s" wait, v1.2s5`,
		"replica 30 of 5s.":                   "replica 30 of 5 s.",
	} {
		if got := tidy(said); got != want {
			t.Errorf("%q reads %q, want %q", said, got, want)
		}
	}
}

func TestWhenAQueueIsEmpty(t *testing.T) {
	for _, c := range []struct {
		ready int64
		rates *admin.QueueRates
		want  string
	}{
		{0, nil, "now"},
		{0, &admin.QueueRates{In: 2, Out: 1}, "now"},
		{1, nil, "unknown"},
		{1, &admin.QueueRates{In: 2, Out: 2}, "never at this rate"},
		{1, &admin.QueueRates{In: 3, Out: 2}, "never at this rate"},
		{600, &admin.QueueRates{In: 2, Out: 12}, "about 1 min"},
		{50, &admin.QueueRates{Out: 10}, "about 5 s"},
	} {
		q := &admin.Queue{Rates: c.rates}
		q.Depth.Ready = c.ready
		if got := drainText(q); got != c.want {
			t.Errorf("%d ready, %+v: %q, want %q", c.ready, c.rates, got, c.want)
		}
	}
}

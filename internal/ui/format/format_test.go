package format

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/admin"
)

func TestNumbersAreReadable(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1204: "1,204", 12345: "12.3k", 100000: "100k", 1234567: "1.2M", 3e9: "3G"} {
		if got := ShortNumber(n); got != want {
			t.Errorf("ShortNumber(%d) = %q, want %q", n, got, want)
		}
	}
	if got := Number(-1234567); got != "-1,234,567" {
		t.Errorf("Number(-1234567) = %q", got)
	}
}

// spans are durations as pages display the distance of a time. TestFormsAndKeys checks that the script displays some in the same way.
var spans = map[time.Duration]string{0: "0 s", 59400 * time.Millisecond: "59 s", time.Minute - time.Millisecond: "1 min",
	90 * time.Second: "2 min", time.Hour - time.Second: "1 h", 47*time.Hour + 29*time.Minute: "47 h", 48*time.Hour - time.Minute: "2 days",
	90*24*time.Hour - time.Second: "90 days", 89*24*time.Hour + 11*time.Hour: "89 days"}

func TestSpansAreToTheNearest(t *testing.T) {
	for d, want := range spans {
		if got := Coarse(d); got != want {
			t.Errorf("Coarse(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestDurationsReadAlike(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 s", 40 * time.Microsecond: "40 µs", 1500 * time.Microsecond: "2 ms", 48_700 * time.Millisecond: "48.7 s",
		69 * time.Second: "1 min 9 s", 5 * time.Minute: "5 min", 90 * time.Minute: "1 h 30 min", 24 * time.Hour: "1 day",
		27 * time.Hour: "1 day 3 h", 14 * 24 * time.Hour: "14 days", -3 * time.Second: "−3 s",
	} {
		if got := Duration(d); got != want {
			t.Errorf("Duration(%v) = %q, want %q", d, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		400 * time.Millisecond: "0 s", 59_600 * time.Millisecond: "1 min", 119 * time.Minute: "2 h",
		14*24*time.Hour - time.Second: "14 days",
	} {
		if got := Coarse(d); got != want {
			t.Errorf("Coarse(%v) = %q, want %q", d, got, want)
		}
	}
	for d, want := range map[time.Duration]string{600 * time.Microsecond: "+0.6 ms", -7100 * time.Microsecond: "−7.1 ms", 0: "0 ms",
		-2 * time.Second: "−2 s"} {
		if got := Offset(d); got != want {
			t.Errorf("Offset(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestMissingValuesAreDashes(t *testing.T) {
	if got := Median(admin.Latency{}); got != "–" {
		t.Errorf("Median without measurements = %s, want a dash", got)
	}
	if got := Median(admin.Latency{Count: 3, P50: time.Millisecond, P95: 70 * time.Second}); got != "1 ms · 1 min 10 s" {
		t.Errorf("Median = %s, want 1 ms · 1 min 10 s", got)
	}
	if got := FailureRate(&admin.Stats{}); got != "–" {
		t.Errorf("FailureRate without attempts = %s, want a dash", got)
	}
	if got := FailureRate(&admin.Stats{Totals: admin.EventCounts{Succeeded: 2}}); got != "0 %" {
		t.Errorf("FailureRate of two successful attempts = %s, want 0", got)
	}
	for text, want := range map[string]string{"queue q1 has 100001 ready tasks, and no worker takes it": "queue q1 has 100,001 " +
		"ready tasks, and no worker takes it",
		"since 2026-01-02 10:00:00": "since 2026-01-02 10:00:00", "999 tasks": "999 tasks"} {
		if got := GroupDigits(text); got != want {
			t.Errorf("GroupDigits(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestFutureTimes(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for at, want := range map[time.Time]string{now.Add(14 * 24 * time.Hour): "6 Dec 12:00 UTC", now.Add(60 * 24 * time.Hour): "21 Jan 2027",
		now.Add(23 * time.Hour): "23 Nov 11:00 UTC", now.Add(11 * time.Hour): "23:00 UTC", now.Add(-13 * time.Hour): "21 Nov 23:00 UTC",
		now.Add(-11 * time.Hour).In(time.FixedZone("", -7200)): "01:00 UTC"} {
		if got := dayFrom(at, now); got != want {
			t.Errorf("dayFrom(%v) = %q, want %q", at, got, want)
		}
	}
	for away, want := range map[time.Duration]string{100 * time.Millisecond: "now", -time.Second: "1 s ago", 11 * time.Hour: "in 11 h",
		23*time.Hour + 59*time.Minute: "23 Nov 11:59Z", -13 * time.Hour: "21 Nov 23:00Z", -400 * 24 * time.Hour: "18 Oct 2025"} {
		if got := Ago(now.Add(away), now).Text; got != want {
			t.Errorf("Ago at a distance of %v = %q, want %q", away, got, want)
		}
	}
	midnight := time.Date(2026, 11, 22, 0, 10, 0, 0, time.UTC)
	for away, want := range map[time.Duration]string{-59 * time.Minute: "59 min ago", -time.Hour: "21 Nov 23:10Z"} {
		if got := Ago(midnight.Add(away), midnight).Text; got != want {
			t.Errorf("Ago soon after midnight, at a distance of %v = %q, want %q", away, got, want)
		}
	}
	if today, other := Clock(now, now), Clock(now, now.Add(12*time.Hour)); today != "12:00:00 UTC" || other != "22 Nov 12:00:00 UTC" {
		t.Errorf("Clock = %q today and %q on another day", today, other)
	}
}

func TestSentencesAreTidied(t *testing.T) {
	for said, want := range map[string]string{
		"no answer from node n2, last heard from 1m53s ago": "no answer from node n2, last heard from 1 min 53 s ago",
		"for 10s at least":                         "for 10 s at least",
		"due in 2h0m0s, at 2026-11-22T14:50:03.8Z": "due in 2 h, at 2026-11-22 14:50:03 UTC",
		"(250ms)":                             "(250 ms)",
		`queue "a-5s" and "10s" wait, v1.2s5`: `queue "a-5s" and "10s" wait, v1.2s5`,
		"replica 30 of 5s.":                   "replica 30 of 5 s.",
		"wait 5s, or move it: pawl task set 7 --in 0s --at 2026-11-22T14:50:03Z": "wait 5 s, or move it: pawl task set 7 --in 0s --at " +
			"2026-11-22T14:50:03Z",
	} {
		if got := Tidy(said); got != want {
			t.Errorf("Tidy(%q) = %q, want %q", said, got, want)
		}
	}
}

// TestShortForms: where there is little room, a duration has one unit, and rates are compared in one.
func TestShortForms(t *testing.T) {
	for d, want := range map[time.Duration]string{48700 * time.Millisecond: "48.7 s", 12*time.Minute + 5*time.Second: "12 min",
		90 * time.Minute: "2 h", 60 * time.Hour: "3 days"} {
		if got := Age(d); got != want {
			t.Errorf("Age(%v) = %q, want %q", d, got, want)
		}
	}
	for rate, want := range map[float64]string{0: "0", 0.004: "0.2", 0.4: "24", 1.5: "90", 1.99: "119", 55.0 / 60: "55",
		20: "1,200", 900: "54k"} {
		if got := PerMinute(rate); got != want {
			t.Errorf("PerMinute(%v) = %q, want %q", rate, got, want)
		}
	}
}

// TestIndentIsBounded: JSON that indentation would blow up stays as it is.
func TestIndentIsBounded(t *testing.T) {
	for data, want := range map[string]string{`{"a":["]\\\"[,",{}]}`: "{\n  \"a\": [\n    \"]\\\\\\\"[,\",\n    {}\n  ]\n}", `[1`: "",
		`]]`: "", "1": "1", strings.Repeat("[", 9000) + strings.Repeat("]", 9000): ""} {
		if got, ok := Indent([]byte(data)); string(got) != want || ok != (want != "") {
			t.Errorf("Indent(%.40s) = %.80q, %t, want %q", data, got, ok, want)
		}
	}
	wide := []byte("[" + strings.Repeat("[", 50) + strings.Repeat("1,", 40_000) + "1" + strings.Repeat("]", 50) + "]")
	if long, ok := Indent(wide); ok {
		t.Errorf("%d bytes became %d", len(wide), len(long))
	}
	if long, ok := Indent(bytes.Replace(wide, []byte("1,"), nil, 30_000)); !ok || len(long) > maxIndented {
		t.Errorf("a fourth of it is indented: %t, to %d bytes", ok, len(long))
	}
}

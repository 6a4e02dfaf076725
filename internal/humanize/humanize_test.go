package humanize

import (
	"strings"
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"30s": 30 * time.Second, "1h30m": 90 * time.Minute, "1h 30m": 90 * time.Minute,
		"14d": 14 * day, "0.5d": 12 * time.Hour, "-5s": -5 * time.Second, "-1d": -day, "0s": 0, "36500d": 36500 * day} {
		if d, err := Duration(text); err != nil || d != want {
			t.Errorf("Duration(%q) = %v, %v; want %v", text, d, err, want)
		}
	}
	for _, text := range []string{"", "5", "d", "soon", "1w", "NaNd", "Infd", "36501d", "-36501d", "1d2h", "9999999h"} {
		if d, err := Duration(text); err == nil {
			t.Errorf("Duration(%q) = %v, want an error", text, d)
		}
	}
}

func TestDurationText(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 30 * time.Second: "30s", 90 * time.Minute: "1h30m", time.Hour: "1h", 24 * time.Hour: "24h", 10 * time.Minute: "10m",
		time.Hour + time.Second: "1h0m1s", 1500 * time.Millisecond: "1.5s", 100 * time.Second: "1m40s", 20 * time.Minute: "20m",
	} {
		got := DurationText(d)
		if back, err := Duration(got); got != want || err != nil || back != d {
			t.Errorf("DurationText(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestRate(t *testing.T) {
	for text, want := range map[string]float64{"50/s": 50, "50": 50, "100/1m": 100.0 / 60, "0.5/s": 0.5, "1,000/h": 1000.0 / 3600,
		"5 / 10s": 0.5, "24/d": 24.0 / 86400} {
		if n, per, err := Rate(text); err != nil || n/per.Seconds() != want {
			t.Errorf("Rate(%q) = %v in %v, %v; want %v a second", text, n, per, err, want)
		}
	}
	for _, text := range []string{"", "abc", "0/s", "0", "/s", "5/", "5/0s", "5/-1s", "5/x", "-1/s", "NaN/s", "Inf/s", "1e16/s", "5/s/s"} {
		if n, per, err := Rate(text); err == nil {
			t.Errorf("Rate(%q) = %v in %v, want an error", text, n, per)
		}
	}
}

func TestPast(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{"2h": "2026-01-31T10:00:00Z", "1d": "2026-01-30T12:00:00Z",
		"2026-01-30": "2026-01-30T00:00:00Z", "2026-01-30T09:30": "2026-01-30T09:30:00Z", "2026-01-30 09:30": "2026-01-30T09:30:00Z",
		"2026-01-30 09:30:15": "2026-01-30T09:30:15Z", "2026-01-30T09:30:00+01:00": "2026-01-30T08:30:00Z"} {
		if at, err := Past(text, now); err != nil || at.UTC().Format(time.RFC3339) != want {
			t.Errorf("Past(%q) = %v, %v; want %s", text, at, err, want)
		}
	}
	for _, text := range []string{"", "tomorrow", "-2h", "2026-13-01", strings.Repeat("x", 5000)} {
		if at, err := Past(text, now); err == nil || len(err.Error()) > 300 {
			t.Errorf("Past(%.20q) = %v, %v, want a short error", text, at, err)
		}
	}
}

func TestCounted(t *testing.T) {
	for want, numbers := range map[string][]uint32{"0": nil, "1 (0)": {0}, "2 (0-1)": {1, 0}, "7 (0-3,5,7-8)": {0, 8, 2, 3, 5, 7, 1}} {
		if got := Counted(numbers); got != want {
			t.Errorf("Counted(%v) = %q, want %q", numbers, got, want)
		}
	}
}

func TestNamed(t *testing.T) {
	for name, want := range map[string]string{"mail": "mail", "_other": "other queues", "": "", "_others": "_others"} {
		if got := Named(name, "queues"); got != want {
			t.Errorf("Named(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0B", 1023: "1023B", 1024: "1KiB", 1536: "1.5KiB", 256<<20 - 1: "255.9MiB",
		256 << 20: "256MiB", 25 << 29: "12.5GiB", 3 << 50: "3072TiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %q, want %q", n, got, want)
		}
	}
}

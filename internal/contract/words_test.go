package contract

import (
	"testing"
	"time"
)

func TestHumanDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 30 * time.Second: "30s", 90 * time.Minute: "1h30m", time.Hour: "1h", 24 * time.Hour: "24h", 10 * time.Minute: "10m",
		time.Hour + time.Second: "1h0m1s", 1500 * time.Millisecond: "1.5s", 100 * time.Second: "1m40s", 20 * time.Minute: "20m",
	} {
		got := SpanText(d)
		if back, err := time.ParseDuration(got); got != want || err != nil || back != d {
			t.Errorf("SpanText(%v) = %q, want %q", d, got, want)
		}
	}
}

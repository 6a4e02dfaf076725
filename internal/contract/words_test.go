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

// JSON may be named with its charset, as many HTTP clients do.
func TestIsJSON(t *testing.T) {
	for of, want := range map[string]bool{"": true, "application/json": true, "application/json; charset=utf-8": true, "application/json;charset=UTF-8": true, "Application/JSON": true,
		"application/json; profile=x": true, "application/json; charset=utf-16": false, "application/json; charset": false, "application/jsonl": false, "text/json": false,
		"application/vnd.api+json": false, "json": false, " ": false} {
		if got := IsJSON(of); got != want {
			t.Errorf("IsJSON(%q) = %t", of, got)
		}
		stored := of
		if want && of != "" {
			stored = "application/json"
		}
		if got := ContentType(of); got != stored {
			t.Errorf("ContentType(%q) = %q, want %q", of, got, stored)
		}
	}
}

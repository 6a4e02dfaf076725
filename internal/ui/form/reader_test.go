package form

import (
	"testing"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/pawltype"
)

func TestRates(t *testing.T) {
	for text, want := range map[string]admin.RateLimit{"50/s": {Limit: 50, Period: time.Second}, "100/1m burst 20": {Limit: 100, Period: time.Minute, Burst: 20}} {
		if rate, err := ParseRate(text); err != nil || rate != want {
			t.Errorf("ParseRate(%q) = %+v, %v, want %+v", text, rate, err, want)
		}
	}
	for _, text := range []string{"50", "0/s", "abc", "/s", "5/", "5/0s", "0.5/s", "5/s burst", "NaN/s", "-1/s"} {
		if rate, err := ParseRate(text); err == nil {
			t.Errorf("ParseRate(%q) = %+v, want an error", text, rate)
		}
	}
}

// TestFieldsRoundTrip: a form submitted without edits has the values that it was filled with.
func TestFieldsRoundTrip(t *testing.T) {
	for _, d := range []time.Duration{time.Millisecond, 90 * time.Second, 20 * time.Minute, 2 * time.Hour, 3*time.Hour + time.Minute, 36 * time.Hour, 14 * 24 * time.Hour, 1500 * time.Millisecond} {
		if got, err := humanize.Duration(DurationText(d)); err != nil || got != d {
			t.Errorf("DurationText(%v) = %q, which parses as %v, %v", d, DurationText(d), got, err)
		}
	}
	if DurationText(0) != "" || DurationText(pawltype.NoWait) != "0s" {
		t.Errorf("DurationText of 0 is %q and of NoWait %q, want an empty text and 0s", DurationText(0), DurationText(pawltype.NoWait))
	}
}

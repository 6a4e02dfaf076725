package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/humanize"
)

// TestRates: every --rate accepts the same forms, and an error lists them.
func TestRates(t *testing.T) {
	for text, want := range map[string]admin.RateLimit{"50": {Limit: 50, Period: time.Second}, "50/s": {Limit: 50, Period: time.Second},
		"30/m": {Limit: 30, Period: time.Minute}, "1000/h": {Limit: 1000, Period: time.Hour}, "100/10s": {Limit: 100,
			Period: 10 * time.Second},
		"100/1m": {Limit: 100, Period: time.Minute}, "5/1d": {Limit: 5, Period: 24 * time.Hour}} {
		rate, err := ReadRate(text)
		pace, perr := ReadPerSecond("--rate", text)
		if err != nil || perr != nil || rate != want || pace != float64(want.Limit)/want.Period.Seconds() {
			t.Errorf("%s: ReadRate = %+v, %v and ReadPerSecond = %v, %v, want %+v", text, rate, err, pace, perr, want)
		}
	}
	if pace, err := ReadPerSecond("--rate", "0.5"); err != nil || pace != 0.5 {
		t.Errorf("ReadPerSecond of half a task a second = %v, %v", pace, err)
	}
	if rate, err := ReadRate("none"); err != nil || rate != (admin.RateLimit{}) {
		t.Errorf("ReadRate of none = %v, %v", rate, err)
	}
	for _, bad := range []string{"", "abc", "/s", "5/", "5/0s", "0/s", "-1/s", "NaN", "Inf/s", "5/s/s", "5/week"} {
		for _, read := range []func(string) error{func(s string) error { _, err := ReadRate(s); return err }, func(s string) error {
			_, err := ReadPerSecond("--rate", s)
			return err
		}} {
			if err := read(bad); err == nil || !strings.Contains(err.Error(), humanize.RateForms) {
				t.Errorf("%q: %v, want an error with the accepted forms", bad, err)
			}
		}
	}
	if _, err := ReadRate("0.5/s"); err == nil || !strings.Contains(err.Error(), "whole number of tasks") {
		t.Errorf("ReadRate of half a task a second: %v, want an error", err)
	}
}

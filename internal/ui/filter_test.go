package ui

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/pawltype"
)

// TestFilterErrors: an error of a filter is shown at its field, which it does not name again.
func TestFilterErrors(t *testing.T) {
	_, _, err := parseFilter("state:sleeping", time.Now())
	e := (*pawltype.Error)(nil)
	if !errors.As(err, &e) || e.Field != "q" || !strings.HasPrefix(e.Message, `"sleeping" is not a state: the states are scheduled,`) {
		t.Errorf("got %v", err)
	}
}

func TestRates(t *testing.T) {
	for text, want := range map[string]admin.RateLimit{"50/s": {Limit: 50, Period: time.Second}, "100/1m burst 20": {Limit: 100, Period: time.Minute, Burst: 20}} {
		if rate, err := parseRate(text); err != nil || rate != want {
			t.Errorf("%q is %+v, %v; want %+v", text, rate, err, want)
		}
	}
	for _, text := range []string{"50", "0/s", "abc", "/s", "5/", "5/0s", "0.5/s", "5/s burst", "NaN/s", "-1/s"} {
		if rate, err := parseRate(text); err == nil {
			t.Errorf("%q reads as %+v", text, rate)
		}
	}
}

func TestSettingsLinesReadBack(t *testing.T) {
	for _, line := range []string{`"tenant-7" running 2 rate 10/1s weight 3`, `"a \"b\" c" rate 5/1m burst 2`, `"x" weight 9`} {
		key, rules, err := parseKeyLine(line)
		if got := keyLine(key, rules); err != nil || got != line {
			t.Errorf("%s reads as %s, %v", line, got, err)
		}
	}
	for _, line := range []string{`tenant-7 running 2`, `"a" running`, `"a" running many`, `"a" fast 2`, `"a" rate 5`} {
		if _, rules, err := parseKeyLine(line); err == nil {
			t.Errorf("%s reads as %+v", line, rules)
		}
	}
	for d, want := range map[time.Duration]string{0: "", 30 * time.Second: "30s", 90 * time.Minute: "1h30m", 14 * 24 * time.Hour: "14d", pawltype.NoWait: "0s", 1500 * time.Millisecond: "1.5s"} {
		got := fieldDuration(d)
		if got != want {
			t.Errorf("%v is written %q, want %q", d, got, want)
		}
		if back, err := humanize.Duration(got); got != "" && d > 0 && (err != nil || back != d) {
			t.Errorf("%q is read as %v, %v", got, back, err)
		}
	}
}

func TestNumbersAreReadable(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1204: "1,204", 12345: "12.3k", 100000: "100k", 1234567: "1.2M", 3e9: "3G"} {
		if got := shortNumber(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
	if got := number(-1234567); got != "-1,234,567" {
		t.Errorf("got %q", got)
	}
}

// spans are durations as pages write how far away a time is: TestFormsAndKeys has the script write some.
var spans = map[time.Duration]string{0: "0 s", 59400 * time.Millisecond: "59 s", time.Minute - time.Millisecond: "1 min", 90 * time.Second: "2 min", time.Hour - time.Second: "1 h",
	47*time.Hour + 29*time.Minute: "47 h", 48*time.Hour - time.Minute: "2 days", 90*24*time.Hour - time.Second: "90 days", 89*24*time.Hour + 11*time.Hour: "89 days"}

func TestSpansAreToTheNearest(t *testing.T) {
	for d, want := range spans {
		if got := coarse(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

func TestWordsOfAShell(t *testing.T) {
	for s, want := range map[string]string{"mail.welcome": "mail.welcome", "": "''", "it's $HOME": `'it'\''s $HOME'`} {
		if got := quoteShell(s); got != want {
			t.Errorf("%q is %s, want %s", s, got, want)
		}
	}
}

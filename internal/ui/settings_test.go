package ui

import (
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/pawltype"
)

func TestSettingsLinesReadBack(t *testing.T) {
	for _, line := range []string{`"tenant-7" running 2 rate 10/1s weight 3`, `"a \"b\" c" rate 5/1m burst 2`, `"x" weight 9`} {
		key, rules, err := parseKeyLine(line)
		if got := keyLine(key, rules); err != nil || got != line {
			t.Errorf("the line %s became %s, %v", line, got, err)
		}
	}
	for _, line := range []string{`tenant-7 running 2`, `"a" running`, `"a" running many`, `"a" fast 2`, `"a" rate 5`} {
		if _, rules, err := parseKeyLine(line); err == nil {
			t.Errorf("parseKeyLine(%s) = %+v, want an error", line, rules)
		}
	}
	for d, want := range map[time.Duration]string{0: "", 30 * time.Second: "30s", 90 * time.Minute: "1h30m", 14 * 24 * time.Hour: "14d",
		pawltype.NoWait: "0s", 1500 * time.Millisecond: "1.5s"} {
		got := form.DurationText(d)
		if got != want {
			t.Errorf("DurationText(%v) = %q, want %q", d, got, want)
		}
		if back, err := humanize.Duration(got); got != "" && d > 0 && (err != nil || back != d) {
			t.Errorf("%q is parsed as %v, %v", got, back, err)
		}
	}
}

package tasks

import (
	"slices"
	"testing"
	"time"

	"github.com/pawlq/pawl/admin"
)

// TestRunsAcrossClockChange covers the night in which Vienna's clocks go back.
func TestRunsAcrossClockChange(t *testing.T) {
	day := func(d int, hour int) time.Time { return time.Date(2026, 10, d, hour, 30, 0, 0, time.UTC) }
	runs := runsOf(&admin.Schedule{TimeZone: "Europe/Vienna", UpdatedAt: day(20, 0), PlannedAt: day(24, 1),
		Coming: []time.Time{day(25, 2), day(26, 2)}})
	want := []run{
		{day(24, 1), "Sat 24 Oct 2026 03:30:00 CEST", "24 Oct 01:30:00", ""},
		{day(25, 2), "Sun 25 Oct 2026 03:30:00 CET", "25 Oct 02:30:00", "clocks shift by -60 min"},
		{day(26, 2), "Mon 26 Oct 2026 03:30:00 CET", "26 Oct 02:30:00", ""},
	}
	if !slices.Equal(runs, want) {
		t.Errorf("got %+v, want %+v", runs, want)
	}
	if runs := runsOf(&admin.Schedule{}); runs != nil {
		t.Errorf("a paused schedule has the runs %v", runs)
	}
	for _, zone := range []string{"", "UTC", "Etc/UTC"} {
		if runs := runsOf(&admin.Schedule{TimeZone: zone, PlannedAt: day(24, 1)}); runs[0].UTC != "" {
			t.Errorf("a run in zone %q is shown in UTC twice: %+v", zone, runs)
		}
	}
	if runs := runsOf(&admin.Schedule{TimeZone: "Europe/London", PlannedAt: day(28, 1)}); runs[0].UTC == "" {
		t.Error("a run in London is shown in local time only")
	}
}

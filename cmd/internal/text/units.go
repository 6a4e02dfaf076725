package text

import (
	"strconv"
	"time"

	"github.com/pawlq/pawl/internal/humanize"
)

// Ago formats how long t is before or after now: "3m ago", "in 5s".
func Ago(t, now time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return ""
	case d < 0:
		return "in " + Span(-d)
	default:
		return Span(d) + " ago"
	}
}

// spanUnits are the units of Span, each with the limit above which the next reads better.
var spanUnits = []struct {
	unit, below time.Duration
	name        string
}{{time.Millisecond, time.Second, "ms"}, {time.Second, 2 * time.Minute, "s"}, {time.Minute, 2 * time.Hour, "m"},
	{time.Hour, 48 * time.Hour, "h"}}

// Span formats a duration in its largest suitable unit, rounded to the nearest: 90 days less a moment is 90d.
func Span(d time.Duration) string {
	if d < time.Millisecond {
		return "0s"
	}
	for _, u := range spanUnits {
		if n := d.Round(u.unit); n < u.below {
			return strconv.FormatInt(int64(n/u.unit), 10) + u.name
		}
	}
	const day = 24 * time.Hour
	return strconv.FormatInt(int64(d.Round(day)/day), 10) + "d"
}

// Period formats a duration as the API does, without zero units: "30s", "1h30m"; "" for none.
func Period(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return humanize.DurationText(d)
}

// Days formats a long duration in days, if it is a whole number of them.
func Days(d time.Duration) string {
	const day = 24 * time.Hour
	if d > 0 && d%day == 0 {
		return strconv.Itoa(int(d/day)) + "d"
	}
	return Period(d)
}

// Clock formats a time for people, in the local zone.
func Clock(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05.000 MST") + " (" + Ago(t, now) + ")"
}

// Count formats "1 task", "2 tasks".
func Count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.FormatInt(n, 10) + " " + noun + "s"
}

// Grouped formats 1234567 as 1,234,567.
func Grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for at := len(s) - 3; at > 0 && s[at-1] != '-'; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}

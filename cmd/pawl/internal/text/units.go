package text

import (
	"strconv"
	"strings"
	"time"
)

// Ago says how long before now t was, or how long after: "3m ago", "in 5s".
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

// spanUnits are the units of a span, each up to what is easier to read in the next.
var spanUnits = []struct {
	unit, below time.Duration
	name        string
}{{time.Millisecond, time.Second, "ms"}, {time.Second, 2 * time.Minute, "s"}, {time.Minute, 2 * time.Hour, "m"}, {time.Hour, 48 * time.Hour, "h"}}

// Span is a duration in its one largest unit, to the nearest: what ends in 90 days less a moment ends in 90d.
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

// Period writes a duration as the API does, without units that are zero: "30s", "1h30m".
func Period(d time.Duration) string {
	if d == 0 {
		return ""
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Days writes a long duration in days, if it is a whole number of them.
func Days(d time.Duration) string {
	const day = 24 * time.Hour
	if d > 0 && d%day == 0 {
		return strconv.Itoa(int(d/day)) + "d"
	}
	return Period(d)
}

// Clock writes a time for people, in their zone.
func Clock(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05.000 MST") + " (" + Ago(t, now) + ")"
}

// Count writes "1 task", "2 tasks".
func Count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.FormatInt(n, 10) + " " + noun + "s"
}

// Grouped writes 1234567 as 1,234,567.
func Grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for at := len(s) - 3; at > 0 && s[at-1] != '-'; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}

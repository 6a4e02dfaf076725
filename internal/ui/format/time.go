package format

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Moment is a time as people read it. Pages are rendered in UTC; with scripts, app.js shows times in the browser's
// zone, with UTC next to them.
type Moment struct {
	Set     bool
	Machine string // RFC 3339, from which a script keeps Text up to date
	Text    string // "3 min ago"; a date if it is not today: "20 Nov 13:04Z"
	Long    string
}

// Ago returns a time relative to now; the zero time is not set.
func Ago(t, now time.Time) Moment {
	if t.IsZero() {
		return Moment{}
	}
	m := Moment{Set: true, Machine: t.UTC().Format(time.RFC3339Nano), Long: t.UTC().Format("Mon 2 Jan 2006 15:04:05.000 MST")}
	switch away := t.Sub(now); {
	case away.Abs() < 500*time.Millisecond:
		m.Text = "now"
	case away > 0:
		m.Text = "in " + Coarse(away)
	default:
		m.Text = Coarse(-away) + " ago"
	}
	if t.Sub(now).Abs() >= time.Hour && !sameDay(t, now) {
		m.Text = dateText(t, now, "Z")
	}
	return m
}

// sameDay reports whether two times are on the same day in UTC.
func sameDay(t, now time.Time) bool {
	return t.UTC().Format(time.DateOnly) == now.UTC().Format(time.DateOnly)
}

// dateText formats a time on another day: within a year by day, clock and the given zone name, else by date.
func dateText(t, now time.Time, zone string) string {
	if t = t.UTC(); t.Year() == now.UTC().Year() {
		return t.Format("2 Jan 15:04") + zone
	}
	return t.Format("2 Jan 2006")
}

// Coarse formats a duration in its largest unit, rounded to the nearest, as app.js does too: 90 days less a moment is 90 days.
func Coarse(d time.Duration) string {
	for _, u := range []struct {
		unit, below time.Duration
		name        string
	}{{time.Second, time.Minute, "s"}, {time.Minute, time.Hour, "min"}, {time.Hour, 48 * time.Hour, "h"}} {
		if n := d.Round(u.unit); n < u.below {
			return fmt.Sprintf("%d %s", n/u.unit, u.name)
		}
	}
	return fmt.Sprintf("%d days", d.Round(24*time.Hour)/(24*time.Hour))
}

const day = 24 * time.Hour

// Age formats a duration in one unit, for places with little room.
func Age(d time.Duration) string {
	if d < time.Minute {
		return Duration(d)
	}
	return Coarse(d)
}

// Duration formats a duration in its two largest units: 3 ms, 48.7 s, 1 min 9 s, 2 h, 14 days.
func Duration(d time.Duration) string {
	switch {
	case d < 0:
		return "−" + Duration(-d)
	case d == 0:
		return "0 s"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Round(time.Microsecond)/time.Microsecond)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond)/time.Millisecond)
	case d < time.Minute:
		return strings.TrimSuffix(strconv.FormatFloat(d.Seconds(), 'f', 1, 64), ".0") + " s"
	case d < time.Hour:
		return twoUnits(d.Round(time.Second), time.Minute, "min", time.Second, "s")
	case d < day:
		return twoUnits(d.Round(time.Minute), time.Hour, "h", time.Minute, "min")
	case d.Round(time.Hour) < 2*day:
		return twoUnits(d.Round(time.Hour), day, "day", time.Hour, "h")
	}
	return twoUnits(d.Round(time.Hour), day, "days", time.Hour, "h")
}

func twoUnits(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := fmt.Sprintf("%d %s", d/large, largeName)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf(" %d %s", rest, smallName)
	}
	return text
}

// Offset formats a clock's offset with its sign.
func Offset(d time.Duration) string {
	if d = d.Round(100 * time.Microsecond); d == 0 {
		return "0 ms"
	}
	sign := "+"
	if d < 0 {
		sign, d = "−", -d
	}
	if d < time.Second {
		return sign + strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 1, 64) + " ms"
	}
	return sign + Duration(d)
}

// Day formats a time of day, with the date if it is not today.
func Day(t time.Time) string { return dayFrom(t, time.Now()) }

func dayFrom(t, now time.Time) string {
	if sameDay(t, now) {
		return t.UTC().Format("15:04 MST")
	}
	return dateText(t, now, " UTC")
}

// Clock formats the start of a step of a chart.
func Clock(t, now time.Time) string {
	if sameDay(t, now) {
		return t.UTC().Format("15:04:05 MST")
	}
	return t.UTC().Format("2 Jan 15:04:05 MST")
}

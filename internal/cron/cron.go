package cron

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // for machines without a time zone database

	"github.com/netresearch/go-cron"
)

// Limits of a schedule.
const (
	MinEvery = time.Second
	MaxEvery = 366 * 24 * time.Hour
	// MaxExpression bounds an expression, in bytes.
	MaxExpression = 256
	// horizon is how many years ahead to search: it covers 29 February around a year like 2100.
	horizon = 9
)

// When is a rule for when something is due. The zero value is never due.
type When struct {
	spec  *cron.SpecSchedule // by the clock of zone; nil: an interval
	zone  *time.Location
	all   bool // the hour is *
	every time.Duration
}

var parser = cron.MustNewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor |
	cron.Extended | cron.DowOrDom).WithMaxSearchYears(horizon)

// Parse parses a cron expression: five fields (minute, hour, day of month, month, day of week), or six with seconds first; names of
// months and days; L, W and #; or @yearly, @monthly, @weekly, @daily, @hourly, or @every with a duration. If both kinds of days are
// restricted, either may match, but both must if the field of one begins with *, as in Vixie cron. Zone is the name of an IANA time
// zone, "" for UTC.
func Parse(expression, zone string) (When, error) {
	if len(expression) > MaxExpression {
		return When{}, fmt.Errorf("%d bytes, at most %d are allowed", len(expression), MaxExpression)
	}
	if name, _, ok := strings.Cut(expression, "="); ok && strings.HasSuffix(name, "TZ") {
		return When{}, errors.New("a time zone has a field of its own")
	}
	if rest, ok := strings.CutPrefix(expression, "@every "); ok {
		if zone != "" {
			return When{}, errors.New("an interval looks at no clock on a wall, so it has no time zone")
		}
		d, err := time.ParseDuration(strings.TrimSpace(rest))
		if err != nil {
			return When{}, fmt.Errorf("%q is not a duration such as 90s, 5m or 24h", rest)
		}
		return Every(d)
	}
	place, err := location(zone)
	if err != nil {
		return When{}, err
	}
	parsed, err := parser.Parse(expression)
	if err != nil {
		return When{}, wrong(expression)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return When{}, fmt.Errorf("%q is not a rule of times", expression)
	}
	spec.Location = time.UTC
	if fields := strings.Fields(expression); len(fields) > 1 {
		weekday, date := fields[len(fields)-1], fields[len(fields)-3]
		spec.DowOrDom = !strings.HasPrefix(date, "*") && !strings.HasPrefix(weekday, "*")
	}
	w := When{spec: spec, zone: place, all: spec.Hour&allHours == allHours}
	if w.nextOnWall(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return When{}, errors.New("it is never due")
	}
	return w, nil
}

const allHours = 1<<24 - 1

// Every returns a rule that is due repeatedly at an interval of whole seconds, counted from the schedule's beginning.
func Every(d time.Duration) (When, error) {
	if d < MinEvery || d > MaxEvery || d%time.Second != 0 {
		return When{}, fmt.Errorf("%v is not whole seconds between %v and %v", d, MinEvery, MaxEvery)
	}
	return When{every: d}, nil
}

// Next returns the first time after t at which w is due; zero: never again. Began is when the schedule began, from which intervals
// are counted. Times are whole seconds, in UTC.
func (w When) Next(began, t time.Time) time.Time {
	switch {
	case w.every > 0:
		began = began.Truncate(time.Second)
		if t.Before(began) {
			return began.Add(w.every).UTC()
		}
		return began.Add((t.Sub(began)/w.every + 1) * w.every).UTC()
	case w.spec == nil:
		return time.Time{}
	case w.all:
		return w.nextOfAll(t)
	}
	return w.nextNamed(t)
}

// Last returns the last time in (after, upto] at which w is due; zero: there is none.
func (w When) Last(began, after, upto time.Time) (last time.Time) {
	times := w.Newest(began, after, upto, 1)
	if len(times) == 0 {
		return time.Time{}
	}
	return times[0]
}

// Newest returns the last n times in (after, upto] at which w is due, oldest first. It searches windows of growing size, so that a
// long range costs little more than a short one.
func (w When) Newest(began, after, upto time.Time, n int) (times []time.Time) {
	for window := time.Minute; ; window *= 2 {
		from := upto.Add(-window)
		whole := !from.After(after)
		if whole {
			from = after
		}
		times = times[:0]
		for t := w.Next(began, from); !t.IsZero() && !t.After(upto); t = w.Next(began, t) {
			times = append(times, t)
		}
		if len(times) >= n {
			return times[len(times)-n:]
		}
		if whole {
			return times
		}
	}
}

// onWall returns what the clock of the zone shows at t, as if it were UTC.
func (w When) onWall(t time.Time) time.Time {
	_, offset := t.In(w.zone).Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

func (w When) nextOnWall(wall time.Time) time.Time { return w.spec.Next(wall) }

// shown returns the latest time that the clock of the zone has shown up to t, as if it were UTC. Shortly after the clock was put back that
// is later than what it shows at t.
func (w When) shown(t time.Time) time.Time {
	latest := w.onWall(t)
	begin, _ := t.In(w.zone).ZoneBounds()
	for !begin.IsZero() && t.Sub(begin) < maxShift {
		last := begin.Add(-time.Second)
		if before := w.onWall(last); before.After(latest) {
			latest = before
		}
		begin, _ = last.In(w.zone).ZoneBounds()
	}
	return latest
}

// nextNamed follows the local clock: each time that it matches is due once. What the clock has shown by t was due by then.
func (w When) nextNamed(t time.Time) time.Time {
	for wall := w.shown(t); ; {
		if wall = w.nextOnWall(wall); wall.IsZero() {
			return time.Time{}
		}
		if at := w.first(wall); at.After(t) {
			return at
		}
	}
}

// maxShift is more than any clock is moved forward or back in one step under the rules of this century.
const maxShift = 3 * time.Hour

// first returns the first moment at which the clock shows this time, or at which it jumps over it.
func (w When) first(wall time.Time) time.Time {
	guess := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), 0, w.zone)
	begin, end := guess.ZoneBounds()
	var found time.Time
	for _, near := range []time.Time{guess, begin.Add(-time.Second), end} {
		if near.IsZero() || begin.IsZero() && near.Before(guess) {
			continue
		}
		_, offset := near.Zone()
		at := wall.Add(-time.Duration(offset) * time.Second)
		if w.onWall(at).Equal(wall) && (found.IsZero() || at.Before(found)) {
			found = at
		}
	}
	if !found.IsZero() {
		return found
	}
	for _, jump := range []time.Time{begin, end} {
		if !jump.IsZero() && w.onWall(jump.Add(-time.Second)).Before(wall) && w.onWall(jump).After(wall) {
			return jump.UTC()
		}
	}
	return guess.UTC()
}

// nextOfAll follows elapsed time: it reads the clock as time passes, even where the clock was changed.
func (w When) nextOfAll(t time.Time) time.Time {
	for limit := t.AddDate(horizon, 0, 0); t.Before(limit); {
		wall := w.onWall(t)
		next := w.nextOnWall(wall)
		if next.IsZero() {
			return next
		}
		at := t.Add(next.Sub(wall)).UTC().Truncate(time.Second)
		_, end := t.In(w.zone).ZoneBounds()
		if !end.IsZero() && !end.After(t) { // Go 1.26 ends leap years after 2037 a day early, and does not get on from there
			end = t.Add(24 * time.Hour)
		}
		if end.IsZero() || at.Before(end) {
			return at
		}
		if wall := w.onWall(end); w.nextOnWall(wall.Add(-time.Second)).Equal(wall) {
			return end.UTC()
		}
		t = end
	}
	return time.Time{}
}

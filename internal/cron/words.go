package cron

import (
	"fmt"
	"strings"
	"time"
)

// maxTimes is how many times of day the words list one by one.
const maxTimes = 6

// Words describes in English when w is due, such as "At 09:30, Monday to Friday"; "" for the zero value. Times are local to the
// time zone of w, which the words don't name. Rules that are due at different times have different words.
func (w When) Words() string {
	switch {
	case w.every > 0:
		return "Every " + spanWords(w.every) + ", counted from when this was set"
	case w.spec == nil:
		return ""
	}
	at, daily := timeWords(setOf(w.spec.Second, 0, 59), setOf(w.spec.Minute, 0, 59), setOf(w.spec.Hour, 0, 23))
	days, months := dayWords(w.spec), monthWords(w.spec)
	if days == "" && daily {
		at += " every day"
	}
	switch {
	case days == "" && months == "":
		return at
	case days == "":
		return at + " in " + months
	case strings.HasPrefix(days, "on "), strings.HasPrefix(days, "every ") && strings.HasPrefix(at, "At "):
		return at + " " + days
	}
	return at + ", " + days
}

// spanWords returns the length of an interval in words, without units that are zero.
func spanWords(d time.Duration) string {
	if unit, name := wholeUnit(d); d == unit {
		return name
	}
	var parts []string
	for _, u := range units {
		if n := int(d / u.length); n > 0 {
			parts, d = append(parts, counted(n, u.name)), d%u.length
		}
	}
	return listed(parts)
}

var units = []struct {
	length time.Duration
	name   string
}{{time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}}

func wholeUnit(d time.Duration) (time.Duration, string) {
	for _, u := range units {
		if d >= u.length {
			return u.length, u.name
		}
	}
	return 0, ""
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// timeWords describes the times of day. Daily reports whether they are a few times each day, rather than a continuous rhythm.
func timeWords(seconds, minutes, hours set) (at string, daily bool) {
	if seconds.n()*minutes.n()*hours.n() <= maxTimes {
		return "At " + listed(clockTimes(seconds, minutes, hours)), true
	}
	if often := oftenWords(seconds, minutes); often != "" {
		from, to, through := hours.run()
		switch {
		case hours.full():
			return often, false
		case through:
			return fmt.Sprintf("%s from %s to %s", often, clock(from, minutes.first(), seconds), clock(to, minutes.last(),
				set{bits: 1 << seconds.last()})), true
		}
	}
	exact := seconds.is(0)
	if step := hours.step(); exact && step > 1 && minutes.n() == 1 {
		if minutes.is(0) {
			return fmt.Sprintf("Every %d hours", step), false
		}
		return fmt.Sprintf("Every %d hours, %s past the hour", step, counted(minutes.first(), "minute")), false
	}
	if exact && hours.full() && minutes.n() == 1 {
		return fmt.Sprintf("At %s past every hour", counted(minutes.first(), "minute")), false
	}
	return fieldWords(seconds, minutes, hours)
}

// oftenWords describes a rhythm that divides the hour or the minute evenly; "": there is none.
func oftenWords(seconds, minutes set) string {
	pace := func(step int, noun string) string {
		if step == 1 {
			return "Every " + noun
		}
		return fmt.Sprintf("Every %d %ss", step, noun)
	}
	switch {
	case minutes.full() && seconds.step() > 0:
		return pace(seconds.step(), "second")
	case seconds.is(0) && minutes.step() > 0:
		return pace(minutes.step(), "minute")
	case seconds.is(0) && minutes.is(0):
		return "Every hour"
	}
	return ""
}

// fieldWords describes the fields one by one: the fallback for rules that have no short description.
func fieldWords(seconds, minutes, hours set) (at string, daily bool) {
	var parts []string
	if !seconds.is(0) {
		parts = append(parts, seconds.named("second"))
	}
	if !minutes.full() || len(parts) == 0 || !hours.full() {
		parts = append(parts, minutes.named("minute"))
	} else {
		parts = append(parts, "every minute")
	}
	if !hours.full() {
		parts = append(parts, hours.named("hour"))
	} else if !minutes.full() {
		parts = append(parts, "every hour")
	}
	at = strings.Join(parts, " of ")
	if every, ok := strings.CutPrefix(at, "every "); ok {
		return "Every " + every, !hours.full()
	}
	return "At " + at, !hours.full()
}

// clockTimes returns all times of day.
func clockTimes(seconds, minutes, hours set) (times []string) {
	for h := range hours.each {
		for m := range minutes.each {
			for s := range seconds.each {
				times = append(times, clock(h, m, set{bits: 1 << s}))
			}
		}
	}
	return times
}

// clock formats a time of day, with seconds unless they are zero. Only the first of the seconds counts.
func clock(hour, minute int, seconds set) string {
	if seconds.is(0) {
		return fmt.Sprintf("%02d:%02d", hour, minute)
	}
	return fmt.Sprintf("%02d:%02d:%02d", hour, minute, seconds.first())
}

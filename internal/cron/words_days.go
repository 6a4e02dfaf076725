package cron

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/netresearch/go-cron"
)

// monthWords returns the months of a rule; "": all.
func monthWords(spec *cron.SpecSchedule) string {
	s := setOf(spec.Month, 1, 12)
	if s.full() {
		return ""
	}
	return listed(s.parts(func(m int) string { return time.Month(m).String() }))
}

// dayWords returns the days of a rule with their months; "": it is due on every day of its months.
func dayWords(spec *cron.SpecSchedule) string {
	month, months := "the month", ""
	if names := monthWords(spec); names != "" {
		month, months = names, " in "+names
	}
	dates, weekdays := setOf(spec.Dom, 1, 31), setOf(spec.Dow, 0, 6)
	either := spec.DowOrDom && spec.Dom>>63 == 0 && spec.Dow>>63 == 0
	switch {
	case dates.full() && weekdays.full(), either && (dates.full() || weekdays.full()):
		return ""
	case weekdays.full():
		return "on " + dateWords(dates, spec.DomConstraints, month)
	case dates.full():
		return weekdayWords(weekdays, spec.DowConstraints, month, months, false)
	}
	and := " and "
	if !either {
		and = ", but only "
	}
	return "on " + dateWords(dates, spec.DomConstraints, month) + and + weekdayWords(weekdays, spec.DowConstraints, month, months, true)
}

// dateWords returns days of a month by date: "the 1st, the 15th and the last day of the month".
func dateWords(dates set, more []cron.DomConstraint, month string) string {
	var parts []string
	if stride := dates.stride(); stride > 1 && dates.n() >= minPace {
		parts = append(parts, fmt.Sprintf("every %s day from the %s to the %s", ordinal(stride), ordinal(dates.first()),
			ordinal(dates.last())))
	} else if dates.bits != 0 {
		for _, p := range dates.parts(ordinal) {
			parts = append(parts, "the "+p)
		}
	}
	more = slices.Clone(more)
	slices.SortFunc(more, func(a, b cron.DomConstraint) int { return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.N, b.N)) })
	for _, c := range slices.Compact(more) {
		parts = append(parts, constraintWords(c))
	}
	return listed(parts) + " of " + month
}

func constraintWords(c cron.DomConstraint) string {
	switch {
	case c.Type == cron.DomLastWeekday:
		return "the last weekday"
	case c.Type == cron.DomNearestWeekday:
		return "the weekday nearest the " + ordinal(c.N)
	case c.Type == cron.DomLastOffset && c.N > 0:
		return "the " + ordinal(c.N) + " day before the last"
	}
	return "the last day"
}

// weekdayWords returns days of the week: "Monday to Friday", "every Monday and Friday", "on the third Friday of the month".
func weekdayWords(weekdays set, more []cron.DowConstraint, month, months string, every bool) string {
	var parts []string
	if weekdays.bits != 0 {
		names := weekdayNames(weekdays)
		if plain := len(names) == 1 && weekdays.n() > 1 && !every && len(more) == 0; plain {
			return names[0] + months
		}
		parts = append(parts, "every "+listed(names)+months)
	}
	more = slices.Clone(more)
	slices.SortFunc(more, func(a, b cron.DowConstraint) int {
		return cmp.Or(cmp.Compare((a.N+6)%6, (b.N+6)%6), cmp.Compare(a.Weekday, b.Weekday))
	})
	var nth []string
	for _, c := range slices.Compact(more) {
		nth = append(nth, "the "+nthWord(c.N)+" "+time.Weekday(c.Weekday).String())
	}
	if len(nth) > 0 {
		parts = append(parts, "on "+listed(nth)+" of "+month)
	}
	return listed(parts)
}

func nthWord(n int) string {
	if n < 0 {
		return "last"
	}
	return [...]string{"first", "second", "third", "fourth", "fifth"}[n-1]
}

// weekdayNames starts with Monday or, if the days run on across the end of the week, with the day after a gap.
func weekdayNames(days set) []string {
	first := 1
	if wraps := days.bits&0b11 == 0b11 && !days.full(); wraps { // Sunday and Monday
		for days.bits>>((first+6)%7)&1 == 1 {
			first = (first + 6) % 7
		}
	}
	turned := set{min: 0, max: 6}
	for d := range days.each {
		turned.bits |= 1 << ((d - first + 7) % 7)
	}
	return turned.parts(func(i int) string { return time.Weekday((i + first) % 7).String() })
}

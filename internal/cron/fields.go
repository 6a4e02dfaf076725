package cron

import (
	"fmt"
	"strconv"
	"strings"
)

// fieldNames are the fields of an expression; the first may be missing.
var fieldNames = []string{"second", "minute", "hour", "day of the month", "month", "day of the week"}

// Check rejects fields that Parse accepts but that are probably mistakes: lists with an empty entry, and ranges that run backwards.
// Parse still accepts them, because stored schedules may contain them.
func Check(expression string) error {
	fields := strings.Fields(expression)
	if len(fields) > len(fieldNames) || strings.HasPrefix(expression, "@") {
		return nil
	}
	for i, field := range fields {
		name := fieldNames[len(fieldNames)-len(fields)+i]
		for entry := range strings.SplitSeq(field, ",") {
			if entry == "" {
				return fmt.Errorf("%s: the list %q has an empty entry", name, field)
			}
			if backwards(entry) {
				return fmt.Errorf("%s: the range %q runs backwards: name two ranges, one up to the end and one from the beginning", name, entry)
			}
		}
	}
	return nil
}

func backwards(entry string) bool {
	bounds, _, _ := strings.Cut(entry, "/")
	low, high, isRange := strings.Cut(bounds, "-")
	if !isRange {
		return false
	}
	from, ok := number(low)
	to, okTo := number(high)
	if strings.EqualFold(high, "sun") { // the last day of a week as well as its first
		to = 7
	}
	return ok && okTo && from > to
}

// names are the names of months and days, each in order.
var names = []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec", "sun", "mon", "tue", "wed", "thu", "fri", "sat"}

const months = 12

// number returns a bound of a range; false: it is neither a number nor a name.
func number(bound string) (int, bool) {
	for i, name := range names {
		switch {
		case !strings.EqualFold(bound, name):
		case i < months:
			return i + 1, true
		default:
			return i - months, true
		}
	}
	n, err := strconv.Atoi(bound)
	return n, err == nil
}

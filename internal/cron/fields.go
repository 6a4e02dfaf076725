package cron

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// fieldsOf are the fields of an expression; the first may be missing. Want says what each may be.
var fieldsOf = []struct{ name, want string }{
	{"second", "0 to 59, such as 5, 1-5 or */10"},
	{"minute", "0 to 59, such as 5, 1-5 or */10"},
	{"hour", "0 to 23, such as 5, 1-5 or */6"},
	{"day of the month", "1 to 31, such as 5, 1-5 or */2, or L, L-3, LW or 15W"},
	{"month", "1 to 12 or jan to dec, such as 5, jan-mar or */3"},
	{"day of the week", "0 to 7 or sun to sat, such as 5, mon-fri or fri#3"},
}

// wrong says what is wrong with an expression that the parser refuses, whose own errors are about its settings and functions.
func wrong(expression string) error {
	if strings.HasPrefix(expression, "@") {
		return errors.New("want @yearly, @monthly, @weekly, @daily, @hourly, or @every with a duration such as 90s")
	}
	fields := strings.Fields(expression)
	skipped := len(fieldsOf) - len(fields)
	if skipped != 0 && skipped != 1 {
		return fmt.Errorf("%d fields, want 5 (minute, hour, day of the month, month, day of the week), or 6 with seconds first",
			len(fields))
	}
	for i, field := range fields {
		for entry := range strings.SplitSeq(field, ",") {
			alone := slices.Repeat([]string{"*"}, len(fields))
			alone[i] = entry
			if _, err := parser.Parse(strings.Join(alone, " ")); err != nil && entry != "" {
				return fmt.Errorf("%s: %q is not %s", fieldsOf[skipped+i].name, entry, fieldsOf[skipped+i].want)
			}
		}
	}
	return errors.New("it is not a cron expression")
}

// Check rejects fields that Parse accepts but that are probably mistakes: lists with an empty entry, and ranges that run backwards.
// Parse still accepts them, because stored schedules may contain them.
func Check(expression string) error {
	fields := strings.Fields(expression)
	if len(fields) > len(fieldsOf) || strings.HasPrefix(expression, "@") {
		return nil
	}
	for i, field := range fields {
		name := fieldsOf[len(fieldsOf)-len(fields)+i].name
		for entry := range strings.SplitSeq(field, ",") {
			if entry == "" {
				return fmt.Errorf("%s: the list %q has an empty entry", name, field)
			}
			if backwards(entry) {
				return fmt.Errorf("%s: the range %q runs backwards: name two ranges, one up to the end and one from the beginning", name,
					entry)
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
var names = []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec", "sun", "mon", "tue", "wed",
	"thu", "fri", "sat"}

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

package format

import (
	"regexp"
	"strings"
	"time"
)

// TidyTime formats a time as pages do, and returns anything else unchanged.
func TidyTime(text string) string {
	if instant.FindString(text) == text {
		return Tidy(text)
	}
	return text
}

// longNumber matches a count in a sentence of the API, whose digits are not grouped yet.
var longNumber = regexp.MustCompile(`(^|\s)(\d{4,})( [a-z])`)

// GroupDigits groups the digits of counts in a sentence.
func GroupDigits(s string) string {
	return longNumber.ReplaceAllStringFunc(s, func(m string) string {
		at := longNumber.FindStringSubmatch(m)
		return at[1] + Number(at[2]) + at[3]
	})
}

// instant matches a time in a sentence of the API.
var instant = regexp.MustCompile(`(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z`)

// duration matches a duration in a sentence of the API, such as 1m53s, 10s or 2h0m0s, but not in quotes, where names are.
var duration = regexp.MustCompile(`(^|[ (])((?:\d+h)?(?:\d+m)?\d+(?:\.\d+)?(?:ms|µs|s))([ ,;:.)]|$)`)

// Tidy reformats the times and durations in a sentence as they are written elsewhere on pages, up to the command at its end.
func Tidy(s string) string {
	command := ""
	if at := strings.Index(s, ": pawl "); at >= 0 {
		s, command = s[:at], s[at:]
	}
	return tidy(s) + command
}

func tidy(s string) string {
	return duration.ReplaceAllStringFunc(instant.ReplaceAllString(s, "$1 $2 UTC"), func(found string) string {
		m := duration.FindStringSubmatch(found)
		d, err := time.ParseDuration(m[2])
		if err != nil {
			return found
		}
		return m[1] + Duration(d) + m[3]
	})
}

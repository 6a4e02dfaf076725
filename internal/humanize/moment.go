package humanize

import (
	"fmt"
	"time"
)

// Time parses an RFC 3339 time or a prefix of one: without a zone it is UTC, a date alone means its first moment.
func Time(s string) (t time.Time, err error) {
	for _, form := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime,
		"2006-01-02 15:04", time.DateOnly} {
		if t, err = time.Parse(form, s); err == nil {
			return t, nil
		}
	}
	return t, fmt.Errorf("%s is neither a day such as 2026-01-31 nor a time such as 2026-01-31T12:00:00Z", quote(s))
}

// Past parses a time, or an age before now: 2h, 7d.
func Past(s string, now time.Time) (time.Time, error) {
	if t, err := Time(s); err == nil {
		return t, nil
	}
	if d, err := Duration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, fmt.Errorf("%s is neither a day such as 2026-01-31, a time such as 2026-01-31T12:00:00Z nor an age "+
		"such as 2h or 7d",
		quote(s))
}

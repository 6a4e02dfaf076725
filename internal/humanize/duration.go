package humanize

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// maxDays keeps days from overflowing.
const maxDays = 100 * 365

// Duration parses a duration: 30s, 1h30m, 14d, 0.5d. It may be negative.
func Duration(s string) (time.Duration, error) {
	text := strings.ReplaceAll(s, " ", "")
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseFloat(days, 64); err == nil && math.Abs(n) <= maxDays {
			return time.Duration(n * float64(day)), nil
		}
	} else if d, err := time.ParseDuration(text); err == nil {
		return d, nil
	}
	return 0, fmt.Errorf("%s is not a duration such as 30s, 1h30m or 14d", quote(s))
}

// DurationText formats a duration as Duration reads it and the API shows it: 1h30m, not 1h30m0s.
func DurationText(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// quote quotes the input, or the beginning of it.
func quote(s string) string {
	const most = 60 // bytes
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.Quote(s)
}

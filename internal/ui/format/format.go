package format

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pawlq/pawl/admin"
)

// Decimal formats a number with at most one decimal place.
func Decimal(f float64) string {
	if f >= 100 {
		return Number(int64(f + 0.5))
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0")
}

// Number groups digits: 1,204.
func Number(n any) string {
	s := fmt.Sprint(n)
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// ShortNumber formats a count in about four characters: 12.3k.
func ShortNumber(n int64) string {
	for _, u := range []struct {
		from int64
		unit string
	}{{1e9, "G"}, {1e6, "M"}, {1e4, "k"}} {
		if n >= u.from {
			by := u.from
			if u.unit == "k" {
				by = 1000
			}
			f := strconv.FormatFloat(float64(n)/float64(by), 'f', 1, 64)
			if len(f) > 4 {
				f = strconv.FormatInt(n/by, 10)
			}
			return strings.TrimSuffix(f, ".0") + u.unit
		}
	}
	return Number(n)
}

// Size formats a number of bytes: 512 B, 1.5 MiB.
func Size(n int64) string {
	const unit = 1024
	f, i := float64(n), 0
	for ; f >= unit && i < 5; i++ {
		f /= unit
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}[i])
}

// Clip shortens a text to n characters.
func Clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// List joins texts with commas.
func List(list []string) string { return strings.Join(list, ", ") }

// Plural formats a count with its noun: 1 task, 1,204 tasks.
func Plural(n any, noun string) string {
	s := Number(n)
	if s == "1" {
		return s + " " + noun
	}
	return s + " " + noun + "s"
}

// Rate formats a rate in the unit that reads best: per second, or per minute for rare events.
func Rate(perSecond float64) string {
	switch {
	case perSecond == 0:
		return "0"
	case perSecond >= 1:
		return Decimal(perSecond) + "/s"
	}
	return Decimal(perSecond*60) + "/min"
}

// PerMinute formats a rate per second as a number per minute, for columns in which rates are compared.
func PerMinute(perSecond float64) string {
	if n := perSecond * 60; n >= 100 {
		return ShortNumber(int64(n + 0.5))
	}
	return Decimal(perSecond * 60)
}

// Median formats the median of a duration; a dash if there is none.
func Median(l admin.Latency) string {
	if l.Count == 0 {
		return "–"
	}
	return Duration(l.P50) + " · " + Duration(l.P95)
}

// FailureRate formats the share of attempts that failed; a dash if none ended.
func FailureRate(s *admin.Stats) string {
	if s.Totals.Succeeded+s.Totals.Failed+s.Totals.Crashed == 0 {
		return "–"
	}
	return Decimal(s.FailureRate*100) + " %"
}

// Host returns the host of a URL.
func Host(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return "link"
	}
	return Clip(u.Host, 40)
}

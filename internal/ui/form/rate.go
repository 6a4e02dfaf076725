package form

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/ui/format"
)

// RateHint explains how to write rates, in all forms.
const RateHint = "For example 50/s or 100/10s."

// PerSecond parses a maximum rate per second, also from a plain number; "" is 0, which means no limit.
func (r *Reader) PerSecond(name string) float64 {
	s := r.Text(name)
	if s == "" {
		return 0
	}
	n, period, err := humanize.Rate(s)
	if err != nil {
		r.Fail(format.BadField(name, "%v", err))
		return 0
	}
	return n / period.Seconds()
}

// RateLimit parses a rate limit, which may have a burst: 100/1m burst 20.
func (r *Reader) RateLimit(name string) admin.RateLimit {
	s := r.Text(name)
	if s == "" {
		return admin.RateLimit{}
	}
	rate, err := ParseRate(s)
	if err != nil {
		r.Fail(format.BadField(name, "%v", err))
	}
	return rate
}

// ParseRate parses a rate limit: 50/s, or 100/1m burst 20.
func ParseRate(s string) (rate admin.RateLimit, err error) {
	pace, burst, has := strings.Cut(s, "burst")
	n, period, err := humanize.Rate(pace)
	if err == nil && !strings.Contains(pace, "/") {
		err = fmt.Errorf("%q has no period: %s", format.Clip(s, 60), humanize.RateForms)
	}
	if err != nil {
		return rate, err
	}
	rate = admin.RateLimit{Limit: int(n), Period: period}
	if float64(rate.Limit) != n {
		return rate, fmt.Errorf("%q: use whole tasks; for fewer than one per second use a longer period, for example 1/10s",
			format.Clip(s, 60))
	}
	if has {
		if rate.Burst, err = strconv.Atoi(strings.TrimSpace(burst)); err != nil {
			return rate, fmt.Errorf("%q: burst has no number", format.Clip(s, 60))
		}
	}
	return rate, nil
}

// RateText formats a rate limit so that ParseRate can parse it; "" for none.
func RateText(r admin.RateLimit) string {
	if r.Limit == 0 {
		return ""
	}
	text := fmt.Sprintf("%d/%s", r.Limit, DurationText(r.Period))
	if r.Burst > 0 && r.Burst != r.Limit {
		text += fmt.Sprintf(" burst %d", r.Burst)
	}
	return text
}

package cli

import (
	"math"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/humanize"
)

// RateForms describes the forms that every --rate accepts.
const RateForms = humanize.RateForms + "; 50 alone is in a second"

// ReadPerSecond parses a rate in tasks per second.
func ReadPerSecond(flag, s string) (float64, error) {
	n, per, err := humanize.Rate(s)
	if err != nil {
		return 0, Usage("%s %v", flag, err)
	}
	return n / per.Seconds(), nil
}

// ReadRate parses a rate limit: a whole number of tasks per period, or none.
func ReadRate(s string) (admin.RateLimit, error) {
	if s == "none" {
		return admin.RateLimit{}, nil
	}
	n, per, err := humanize.Rate(s)
	if err != nil {
		return admin.RateLimit{}, Usage("--rate %v", err)
	}
	if n != math.Trunc(n) || n > math.MaxInt32 {
		return admin.RateLimit{}, Usage("--rate %q: a limit is a whole number of tasks; use a longer period for few tasks, such as 1/10s",
			s)
	}
	return admin.RateLimit{Limit: int(n), Period: per}, nil
}

package cli

import (
	"math"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/humanize"
)

// RateForms are the forms that every --rate takes.
const RateForms = humanize.PaceForms + "; 50 alone is in a second"

// ReadPace reads tasks a second.
func ReadPace(flag, s string) (float64, error) {
	n, per, err := humanize.Pace(s)
	if err != nil {
		return 0, Usage("%s %v", flag, err)
	}
	return n / per.Seconds(), nil
}

// ReadRate reads the rate of a limit: whole tasks in a time, or none.
func ReadRate(s string) (admin.RateLimit, error) {
	if s == "none" {
		return admin.RateLimit{}, nil
	}
	n, per, err := humanize.Pace(s)
	if err != nil {
		return admin.RateLimit{}, Usage("--rate %v", err)
	}
	if n != math.Trunc(n) || n > math.MaxInt32 {
		return admin.RateLimit{}, Usage("--rate %q: a limit is of whole tasks, in a longer time if they are few, such as 1/10s", s)
	}
	return admin.RateLimit{Limit: int(n), Period: per}, nil
}

package main

import (
	"math"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/human"
)

// rateForms are the forms that every --rate takes.
const rateForms = human.PaceForms + "; 50 alone is in a second"

// readPace reads tasks a second.
func readPace(flag, s string) (float64, error) {
	n, per, err := human.Pace(s)
	if err != nil {
		return 0, usage("%s %v", flag, err)
	}
	return n / per.Seconds(), nil
}

// readRate reads the rate of a limit: whole tasks in a time, or none.
func readRate(s string) (admin.RateLimit, error) {
	if s == "none" {
		return admin.RateLimit{}, nil
	}
	n, per, err := human.Pace(s)
	if err != nil {
		return admin.RateLimit{}, usage("--rate %v", err)
	}
	if n != math.Trunc(n) || n > math.MaxInt32 {
		return admin.RateLimit{}, usage("--rate %q: a limit is of whole tasks, in a longer time if they are few, such as 1/10s", s)
	}
	return admin.RateLimit{Limit: int(n), Period: per}, nil
}

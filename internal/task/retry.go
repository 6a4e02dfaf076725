package task

import (
	"math"
	"time"

	"github.com/pawlq/pawl/pawltype"
)

// Retry is a retry policy without defaults: a field that is 0 is 0.
type Retry pawltype.RetryPolicy

// DefaultRetry: 30 s, 60 s, 120 s … 30 min, each with up to a quarter on top, so that tasks that failed together are not all
// retried at the same time.
var DefaultRetry = Retry{Initial: 30 * time.Second, Factor: 2, Max: 30 * time.Minute, Jitter: 0.25}

// Delay returns the wait after the n-th used attempt, counting from 1. chance is a number from 0 to 1 that selects a wait within
// the jitter.
func (r Retry) Delay(n int, chance float64) time.Duration {
	d := float64(r.Initial) * math.Pow(r.Factor, float64(max(n-1, 0)))
	if !(d < float64(r.Max)) { // also if it overflowed
		d = float64(r.Max)
	}
	return time.Duration(d + d*r.Jitter*chance)
}

// Check refuses a policy that breaks a rule.
func (r Retry) Check(field string) error {
	switch {
	case r.Initial < 0 || r.Initial > MaxDelay:
		return Invalid(field+".initial", "%v is not between 0 and %v", r.Initial, MaxDelay)
	case r.Max < r.Initial || r.Max > MaxDelay:
		return Invalid(field+".max", "%v is not between initial (%v) and %v", r.Max, r.Initial, MaxDelay)
	case !(r.Factor >= 1 && r.Factor <= 100):
		return Invalid(field+".factor", "%v is not between 1 and 100", r.Factor)
	case !(r.Jitter >= 0 && r.Jitter <= 1):
		return Invalid(field+".jitter", "%v is not between 0 and 1", r.Jitter)
	}
	return nil
}

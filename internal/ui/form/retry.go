package form

import (
	"strconv"
	"time"

	"github.com/pawlq/pawl/pawltype"
)

// RetryTexts formats the factor and the jitter of a retry policy for form fields.
func RetryTexts(p pawltype.RetryPolicy) (factor, jitter string) {
	if p.Factor > 0 {
		factor = strconv.FormatFloat(p.Factor, 'g', -1, 64)
	}
	switch {
	case p.Jitter > 0:
		jitter = strconv.FormatFloat(p.Jitter, 'g', -1, 64)
	case p.Jitter == pawltype.NoJitter:
		jitter = "0"
	}
	return factor, jitter
}

// RetryPolicy reads a retry policy; empty fields are 0.
func (r *Reader) RetryPolicy(in string) pawltype.RetryPolicy {
	p := pawltype.RetryPolicy{Initial: r.retrySpan(in + "initial"), Factor: r.Float(in + "factor"), Max: r.retrySpan(in + "max"), Jitter: r.Float(in + "jitter")}
	if r.Text(in+"jitter") != "" && p.Jitter == 0 {
		p.Jitter = pawltype.NoJitter
	}
	return p
}

// retrySpan parses a duration for which 0 and "" differ.
func (r *Reader) retrySpan(name string) time.Duration {
	d := r.Duration(name)
	if d == 0 && r.Text(name) != "" {
		return pawltype.NoWait
	}
	return d
}

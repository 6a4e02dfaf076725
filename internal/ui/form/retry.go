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

// RetryPolicy reads a retry policy, from one whose values are in the form.
func (r *Reader) RetryPolicy(in string, p pawltype.RetryPolicy) pawltype.RetryPolicy {
	Set(r, &p.Initial, r.retrySpan, in+"initial")
	Set(r, &p.Factor, r.Float, in+"factor")
	Set(r, &p.Max, r.retrySpan, in+"max")
	Set(r, &p.Jitter, r.jitter, in+"jitter")
	return p
}

func (r *Reader) jitter(name string) float64 {
	if jitter := r.Float(name); jitter > 0 || r.Text(name) == "" {
		return jitter
	}
	return pawltype.NoJitter
}

// retrySpan parses a duration for which 0 and "" differ.
func (r *Reader) retrySpan(name string) time.Duration {
	d := r.Duration(name)
	if d == 0 && r.Text(name) != "" {
		return pawltype.NoWait
	}
	return d
}

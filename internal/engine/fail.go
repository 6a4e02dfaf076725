package engine

import (
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Fall says what a handler asks for after a failed run.
type Fall uint8

const (
	FallRetry   Fall = iota // again later; dead when the attempts have run out
	FallDead                // not retryable
	FallDiscard             // end it on purpose
	FallPoison              // the payload can't be read
)

// FailRequest is how a run failed.
type FailRequest struct {
	Fall    Fall
	Failure schema.Failure
	RetryIn *time.Duration // in place of the backoff
}

// Fail ends an attempt without success. Repeated with the same token it gives the first answer again.
func Fail(r *Round, h Hold, f FailRequest) (Settled, error) {
	from, ended, err := r.Held("fail", h)
	if err != nil {
		if ended != nil && failed(ended) {
			return answerOf(ended), nil
		}
		return Settled{}, err
	}
	c := h.change(r, from)
	outcome := task.OutcomeFailed
	switch f.Fall {
	case FallDead:
		c.To.Failures++
		outcome = task.OutcomeDead
		c.bury(task.ReasonNotRetryable, f.Failure)
	case FallDiscard:
		outcome = task.OutcomeDiscarded
		c.Finish(task.Discarded, task.ReasonHandler)
	case FallPoison:
		outcome = task.OutcomePoisoned
		c.mark(f.Failure)
		c.Finish(task.Poisoned, task.ReasonUnreadable)
	default:
		c.retry(f)
	}
	c.endAttempt(outcome, f.Failure)
	return settled(c.To), nil
}

// retry puts a failed task off, or buries it when its attempts have run out.
func (c *Change) retry(f FailRequest) {
	r, to := c.r, c.To
	to.Failures++
	if to.Used() >= c.q.maxAttempts(to) {
		c.bury(task.ReasonExhausted, f.Failure)
		return
	}
	delay := c.q.retryOf(r.Envelope(c.ns, c.id)).Delay(to.Used(), Chance(c.id, to.Fence))
	if f.RetryIn != nil {
		delay = *f.RetryIn
	}
	to.RunAt = r.now.Add(delay)
	if delay > 0 {
		to.State = task.Retrying
	} else {
		r.MakeReady(to)
	}
	c.waitAgain()
}

// failed says whether a call of Fail ended an attempt.
func failed(a *schema.Attempt) bool {
	switch a.Outcome {
	case task.OutcomeFailed, task.OutcomeDead, task.OutcomeDiscarded, task.OutcomePoisoned:
		return true
	}
	return false
}

// answerOf is what the verb that ended an attempt was told.
func answerOf(a *schema.Attempt) Settled { return Settled{State: a.Then, NextRunAt: a.NextRunAt} }

// settled is the answer to a verb that left its task like this.
func settled(x *schema.Exec) Settled {
	s := Settled{State: x.State}
	if x.State.Waiting() {
		s.NextRunAt = x.RunAt
	}
	return s
}

package engine

import (
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// FailAction is what a handler asks for after a failed run.
type FailAction uint8

const (
	FailRetry   FailAction = iota // again later; dead when the attempts have run out
	FailDead                      // not retryable
	FailDiscard                   // end it on purpose
	FailPoison                    // the payload can't be read
)

// FailRequest describes how a run failed.
type FailRequest struct {
	Action  FailAction
	Failure schema.Failure
	RetryIn *time.Duration // instead of the backoff
}

// Fail ends an attempt without success. Repeating it with the same token returns the first answer.
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
	switch f.Action {
	case FailDead:
		c.To.Failures++
		outcome = task.OutcomeDead
		c.makeDead(task.ReasonNotRetryable, f.Failure)
	case FailDiscard:
		outcome = task.OutcomeDiscarded
		c.Finish(task.Discarded, task.ReasonHandler)
	case FailPoison:
		outcome = task.OutcomePoisoned
		c.setFingerprint(f.Failure)
		c.Finish(task.Poisoned, task.ReasonUnreadable)
	default:
		c.retry(f)
	}
	c.endAttempt(outcome, f.Failure)
	return settled(c.To), nil
}

// retry schedules the next attempt of a failed task, or makes the task a dead letter when its attempts have run out.
func (c *Change) retry(f FailRequest) {
	r, to := c.r, c.To
	to.Failures++
	if to.Used() >= c.q.maxAttempts(to) {
		c.makeDead(task.ReasonExhausted, f.Failure)
		return
	}
	delay := c.q.retryOf(r.Envelope(c.ns, c.id)).Delay(to.Used(), task.Chance(c.id, to.Fence))
	if f.RetryIn != nil {
		delay = *f.RetryIn
	}
	to.RunAt = r.now.Add(delay)
	if delay > 0 {
		to.State = task.Retrying
	} else {
		r.MakeReady(to)
	}
	c.requeue()
}

// failed reports whether a call of Fail ended the attempt.
func failed(a *schema.Attempt) bool {
	switch a.Outcome {
	case task.OutcomeFailed, task.OutcomeDead, task.OutcomeDiscarded, task.OutcomePoisoned:
		return true
	}
	return false
}

// answerOf returns the answer that the verb which ended the attempt got.
func answerOf(a *schema.Attempt) Settled { return Settled{State: a.Then, NextRunAt: a.NextRunAt} }

// settled returns the answer to a verb that left its task in state x.
func settled(x *schema.Exec) Settled {
	s := Settled{State: x.State}
	if x.State.Waiting() {
		s.NextRunAt = x.RunAt
	}
	return s
}

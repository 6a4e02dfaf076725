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
	q := r.QueueOf(h.Namespace, from)
	to := *from
	outcome := task.OutcomeFailed
	switch f.Fall {
	case FallDead:
		to.Failures++
		outcome = task.OutcomeDead
		r.bury(h.Namespace, h.ID, q, from, &to, task.ReasonNotRetryable, f.Failure)
	case FallDiscard:
		outcome = task.OutcomeDiscarded
		r.Finish(h.Namespace, h.ID, q, from, &to, task.Discarded, task.ReasonHandler)
	case FallPoison:
		outcome = task.OutcomePoisoned
		r.mark(h.Namespace, h.ID, &to, f.Failure)
		r.Finish(h.Namespace, h.ID, q, from, &to, task.Poisoned, task.ReasonUnreadable)
	default:
		r.retry(h, q, from, &to, f)
	}
	r.endAttempt(h.Namespace, h.ID, from, &to, outcome, f.Failure)
	return settled(&to), nil
}

// retry puts a failed task off, or buries it when its attempts have run out.
func (r *Round) retry(h Hold, q *Queue, from, to *schema.Exec, f FailRequest) {
	to.Failures++
	if to.Used() >= q.maxAttempts(to) {
		r.bury(h.Namespace, h.ID, q, from, to, task.ReasonExhausted, f.Failure)
		return
	}
	delay := q.retryOf(r.Envelope(h.Namespace, h.ID)).Delay(to.Used(), Chance(h.ID, to.Fence))
	if f.RetryIn != nil {
		delay = *f.RetryIn
	}
	to.RunAt = r.now.Add(delay)
	if delay > 0 {
		to.State = task.Retrying
	} else {
		r.MakeReady(to)
	}
	r.waitAgain(h.Namespace, h.ID, q, from, to)
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

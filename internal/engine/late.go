package engine

import (
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Late verbs serve a holder that lost its lease while no one else has claimed the task: its answer still counts, as
// Amazon SQS does with the receipt handle of the last receive.

// last returns the task if it waits and the token belongs to its last claim.
func (h Hold) last(r *Round) (*schema.Exec, bool) {
	x, err := r.Exec(h.Namespace, h.ID)
	if err != nil || !x.State.Waiting() {
		return nil, false
	}
	return x, h.Token.Fence == x.Fence && h.Token.Nonce == x.Claim.Nonce && h.Token.Epoch == r.l.term.Epoch
}

// AckLate is Ack, but also accepts a task that waits and was not claimed since. Such a task is discarded: the run that
// ended no longer held it.
func AckLate(r *Round, h Hold, result schema.Result) (Settled, error) {
	from, ok := h.last(r)
	if !ok {
		return Ack(r, h, result)
	}
	c := h.change(r, from)
	c.Finish(task.Discarded, task.ReasonHandler)
	return Settled{State: task.Discarded}, nil
}

// ReleaseLate is Release, but also delays a task that waits and was not claimed since.
func ReleaseLate(r *Round, h Hold, delay time.Duration) (Settled, error) {
	from, ok := h.last(r)
	if !ok {
		if _, _, err := r.Held("release", h); err != nil { // even a repeat, as others may have claimed it since
			return Settled{}, err
		}
		return Release(r, h, delay)
	}
	if delay == 0 {
		return settled(from), nil
	}
	c := h.change(r, from)
	c.To.RunAt = r.now.Add(delay)
	if from.State != task.Retrying {
		c.To.State = task.Scheduled
	}
	c.Move()
	return settled(c.To), nil
}

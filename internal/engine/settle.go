package engine

import (
	"fmt"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Hold names a claim. The token of the current claim entitles its bearer to end or extend it.
type Hold struct {
	Namespace string
	ID        task.ID
	Token     task.Token
}

// Settled is the answer to a verb on a claim.
type Settled struct {
	State     task.State
	NextRunAt store.Time // if the task waits for another attempt
}

// Held returns the task of a claim that still holds, or the reason why it does not.
//
// If the attempt has ended, its record is returned with ErrStaleClaim, so that a repeated call gets the first answer.
func (r *Round) Held(verb string, h Hold) (*schema.Exec, *schema.Attempt, error) {
	x, err := r.Exec(h.Namespace, h.ID)
	if err != nil {
		return nil, nil, err
	}
	if x.ClaimedWith(h.Token.Fence, h.Token.Nonce) {
		if h.Token.Epoch != r.l.term.Epoch {
			return nil, nil, h.stale(verb, task.StaleExpired, "the claim was made before the shard was recovered", x)
		}
		return x, nil, nil
	}
	ended, ok := h.attempt(r, x)
	if !ok {
		// A token that was never issued for this task reveals nothing: the answer is as for a task that does not exist.
		return nil, nil, task.NotFound("task", h.ID.String())
	}
	return nil, ended, h.staleness(verb, x, ended)
}

// change starts a change of the claimed task.
func (h Hold) change(r *Round, from *schema.Exec) Change { return r.Change(h.Namespace, h.ID, from) }

// attempt returns the record of the token's attempt, if it has ended.
func (h Hold) attempt(r *Round, x *schema.Exec) (*schema.Attempt, bool) {
	if x.State == task.Succeeded && h.Token.Fence == x.Fence {
		return x.Success(), h.Token.Nonce == x.Claim.Nonce
	}
	row, ok := r.tx.Get(schema.AttemptKey(h.Namespace, h.ID, h.Token.Fence))
	if !ok {
		return nil, false
	}
	a := schema.Must(schema.DecodeAttempt(h.Token.Fence, row))
	return a, a.Nonce == h.Token.Nonce
}

// staleness returns the error that says why the claim no longer holds.
func (h Hold) staleness(verb string, x *schema.Exec, ended *schema.Attempt) error {
	switch {
	case ended.Outcome == task.OutcomeCancelled:
		return h.stale(verb, task.StaleCancelled, "the task was cancelled", x)
	case ended.Outcome != task.OutcomeLeaseLost && ended.Outcome != task.OutcomeLeaderless && ended.Outcome != task.OutcomeTimedOut:
		return h.stale(verb, task.StaleCompleted, fmt.Sprintf("attempt %d has already ended: %s", ended.Number, ended.Outcome), x)
	case x.State == task.Cancelled:
		return h.stale(verb, task.StaleCancelled, "the lease was lost, then the task was cancelled", x)
	case x.Fence == h.Token.Fence:
		return h.stale(verb, task.StaleExpired, "the lease was lost", x)
	case x.State == task.Claimed:
		return h.stale(verb, task.StaleReclaimed, fmt.Sprintf("the lease was lost, reclaimed by %q at fence %d", x.Claim.Worker, x.Fence),
			x)
	}
	return h.stale(verb, task.StaleReclaimed, fmt.Sprintf("the lease was lost, reclaimed at fence %d, now %s", x.Fence, x.State), x)
}

func (h Hold) stale(verb string, reason, why string, x *schema.Exec) error {
	e := &task.Error{Code: task.CodeStaleClaim, Reason: reason, State: x.State,
		Message: fmt.Sprintf("%s %q at fence %d: %s", verb, h.ID, h.Token.Fence, why)}
	if reason == task.StaleReclaimed && x.State == task.Claimed {
		e.Holder = x.Claim.Worker
	}
	return e
}

// maxAttemptLog bounds the attempt log of a task in each epoch. Releases and snoozes use up no attempt, so nothing else
// bounds their number.
const maxAttemptLog = 1000

// endAttempt writes the record of the attempt that this change has ended.
func (c *Change) endAttempt(o task.Outcome, f schema.Failure) {
	a := c.From.AttemptEnded(c.r.now, o)
	a.Failure, a.Then, a.Reason = f, c.To.State, c.To.Reason
	if c.To.State.Waiting() {
		a.NextRunAt = c.To.RunAt
	}
	c.noteOutcome(o, f)
	c.judge(o, f)
	c.r.tx.Set(schema.AttemptKey(c.ns, c.id, a.Fence), a.Encode())
	if task.ClaimsAt(a.Fence) > maxAttemptLog {
		c.r.tx.Delete(schema.AttemptKey(c.ns, c.id, a.Fence-maxAttemptLog))
	}
}

// judge reports the outcome of an attempt to the breaker of the task's type. It must be called after the move.
func (c *Change) judge(o task.Outcome, f schema.Failure) {
	if c.q.breakers != nil {
		c.q.breakers.Judge(c.q.in(c.r), c.id, c.From.Type, o, f)
	}
}

// noteLost records that the claim ended without a call of its holder.
func (c *Change) noteLost(reason string) {
	c.r.Lost = append(c.r.Lost, Lost{ID: c.id, Token: c.r.l.token(c.From), Reason: reason})
}

package engine

import (
	"fmt"

	"github.com/pawlq/pawl/internal/engine/outbox"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/engine/unique"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Hold names a claim: whoever shows the token of the current claim may end or extend it.
type Hold struct {
	Namespace string
	ID        task.ID
	Token     task.Token
}

// Settled is the answer to a verb on a claim.
type Settled struct {
	State     task.State
	NextRunAt store.Time // when the task waits for another attempt
}

// Held finds a claim that still holds, or what became of it.
//
// If the attempt was ended by one of the verbs, its record is returned with ErrStaleClaim, so that a repeated call can
// be given the first answer again.
func (r *Round) Held(verb string, h Hold) (*schema.Exec, *schema.Attempt, error) {
	x, err := r.Exec(h.Namespace, h.ID)
	if err != nil {
		return nil, nil, err
	}
	if h.Token.Fence == x.Fence && h.Token.Nonce == x.Claim.Nonce && x.State == task.Claimed {
		if h.Token.Epoch != r.l.term.Epoch {
			return nil, nil, stale(verb, h, task.StaleExpired, "the claim was made before the shard was recovered", x)
		}
		return x, nil, nil
	}
	ended, ok := r.endedAttempt(h, x)
	if !ok {
		// A token that this task never gave is nobody's: say no more than for a task that does not exist.
		return nil, nil, task.NotFound("task", h.ID.String())
	}
	return nil, ended, r.staleness(verb, h, x, ended)
}

// endedAttempt is the record of the attempt that a token began.
func (r *Round) endedAttempt(h Hold, x *schema.Exec) (*schema.Attempt, bool) {
	if x.State == task.Succeeded && h.Token.Fence == x.Fence {
		return x.Success(), h.Token.Nonce == x.Claim.Nonce
	}
	row, ok := r.tx.Get(schema.AttemptKey(h.Namespace, h.ID, h.Token.Fence))
	if !ok {
		return nil, false
	}
	a, err := schema.DecodeAttempt(h.Token.Fence, row)
	schema.Must(err)
	return a, a.Nonce == h.Token.Nonce
}

// staleness says why a claim no longer holds.
func (r *Round) staleness(verb string, h Hold, x *schema.Exec, ended *schema.Attempt) error {
	switch {
	case ended.Outcome == task.OutcomeCancelled:
		return stale(verb, h, task.StaleCancelled, "the task was cancelled", x)
	case ended.Outcome != task.OutcomeLeaseLost && ended.Outcome != task.OutcomeLeaderless && ended.Outcome != task.OutcomeTimedOut:
		return stale(verb, h, task.StaleCompleted, fmt.Sprintf("attempt %d was ended already: %s", ended.Number, ended.Outcome), x)
	case x.State == task.Cancelled:
		return stale(verb, h, task.StaleCancelled, "the lease was lost, then the task was cancelled", x)
	case x.Fence == h.Token.Fence:
		return stale(verb, h, task.StaleExpired, "the lease was lost", x)
	case x.State == task.Claimed:
		return stale(verb, h, task.StaleReclaimed, fmt.Sprintf("the lease was lost, reclaimed by %q at fence %d", x.Claim.Worker, x.Fence), x)
	}
	return stale(verb, h, task.StaleReclaimed, fmt.Sprintf("the lease was lost, reclaimed at fence %d, now %s", x.Fence, x.State), x)
}

func stale(verb string, h Hold, reason, why string, x *schema.Exec) error {
	e := &task.Error{Code: task.CodeStaleClaim, Reason: reason, State: x.State,
		Message: fmt.Sprintf("%s %q at fence %d: %s", verb, h.ID, h.Token.Fence, why)}
	if reason == task.StaleReclaimed && x.State == task.Claimed {
		e.Holder = x.Claim.Worker
	}
	return e
}

// maxAttemptLog is how many attempts a task remembers. Releases and snoozes use up no attempt, so their number has no
// other bound.
const maxAttemptLog = 1000

// endAttempt writes the record of an attempt of from that led to to.
func (r *Round) endAttempt(ns string, id task.ID, from, to *schema.Exec, o task.Outcome, f schema.Failure) {
	a := from.AttemptEnded(r.now, o)
	a.Failure, a.Then, a.Reason = f, to.State, to.Reason
	if to.State.Waiting() {
		a.NextRunAt = to.RunAt
	}
	r.noteOutcome(id, o, f)
	r.judge(r.QueueOf(ns, from), id, from.Type, o, f)
	r.tx.Set(schema.AttemptKey(ns, id, a.Fence), a.Encode())
	if a.Fence > maxAttemptLog {
		r.tx.Delete(schema.AttemptKey(ns, id, a.Fence-maxAttemptLog))
	}
}

// Finish brings a task to an end state, and lets its group know.
func (r *Round) Finish(ns string, id task.ID, q *Queue, from, to *schema.Exec, s task.State, reason string) {
	r.finishUntold(ns, id, q, from, to, s, reason)
	r.tellEnd(ns, id, to)
}

// finishUntold is finish before the task's group hears of it, which may enqueue a task then.
func (r *Round) finishUntold(ns string, id task.ID, q *Queue, from, to *schema.Exec, s task.State, reason string) {
	to.State, to.Reason, to.EndedAt = s, reason, r.now
	keep := q.config.Settings.Retention.Of(s)
	if to.Retention != nil {
		keep = *to.Retention
	}
	to.KeptUntil = r.now.Add(keep)
	if reason == task.ReasonMoved { // it may have to come back
		to.KeptUntil = max(to.KeptUntil, r.now.Add(outbox.Window))
	}
	if from.Checkpointed && s == task.Succeeded {
		r.tx.Delete(schema.IDKey(ns, schema.TableCheckpoint, id))
		to.Checkpointed = false
	}
	to.Links = to.Links.Turned()
	r.Move(ns, id, q, from, to)
	r.Ended = append(r.Ended, Ended{id, s})
}

// tellEnd lets the group of a task know that it has ended. Of success Ack tells, with what follows.
func (r *Round) tellEnd(ns string, id task.ID, x *schema.Exec) {
	if x.Links.Member() && x.State != task.Succeeded {
		r.tellEnded(ns, id, x, schema.Result{})
	}
}

// tellEnded lets policies act on the end of a task with links, or on its new life.
func (r *Round) tellEnded(ns string, id task.ID, x *schema.Exec, result schema.Result) {
	for _, ended := range r.l.points.ended {
		ended(r, ns, id, x, result)
	}
}

// waitAgain moves a claimed task to where it waits for another run. If another is next to hold its unique key, it is discarded
// instead.
func (r *Round) waitAgain(ns string, id task.ID, q *Queue, from, to *schema.Exec) {
	if unique.HasNext(r, ns, from) {
		r.Finish(ns, id, q, from, to, task.Discarded, task.ReasonReplaced)
		return
	}
	r.Move(ns, id, q, from, to)
}

// bury makes a task a dead letter.
func (r *Round) bury(ns string, id task.ID, q *Queue, from, to *schema.Exec, reason string, f schema.Failure) {
	r.mark(ns, id, to, f)
	r.Finish(ns, id, q, from, to, task.Dead, reason)
	r.Dead = append(r.Dead, DeadLetter{Namespace: ns, ID: id, Exec: *to, Failure: f, Headers: r.Envelope(ns, id).Headers})
}

func (r *Round) QueueOf(ns string, x *schema.Exec) *Queue {
	q := r.Queue(ns, x.Queue)
	if q == nil {
		schema.Must(fmt.Errorf("a task lies in queue %q, which the shard does not have", x.Queue))
	}
	return q
}

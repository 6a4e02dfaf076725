package engine

import (
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Transition is what became of a task in one step of its life: that it came to be, or went from one state to another. What changes
// a task within its state (an extension, an edit, a repeated claim) is none, and neither is an enqueue that found the task there
// already: it writes nothing, so that its round is not committed.
//
// The rows may be read, never written, and only until the leader begins its next round.
type Transition struct {
	Namespace string
	ID        task.ID
	From, To  *schema.Exec // From is nil for a new task
	// Outcome is that of the attempt that ended by it, and Failure what was said of it. OutcomeNone: no attempt ended.
	Outcome task.Outcome
	Failure schema.Failure
}

// Born says whether the task came to be.
func (t *Transition) Born() bool { return t.From == nil }

// Claims says whether an attempt began.
func (t *Transition) Claims() bool { return t.To.State == task.Claimed }

// Replays says whether an ended task got a new life.
func (t *Transition) Replays() bool { return t.From != nil && t.From.State.Ended() }

// Attempt is the number of the attempt that began or ended, or of the next one.
func (t *Transition) Attempt() int {
	if t.Outcome != task.OutcomeNone {
		return t.From.Attempt()
	}
	return t.To.Attempt()
}

// Worker is who holds the task, or held it until now; "": nobody.
func (t *Transition) Worker() string {
	if t.Claims() || t.Outcome != task.OutcomeNone {
		return t.To.Claim.Worker
	}
	return ""
}

// Waited is how long the task had been ready when the claim began that began or ended by the transition.
func (t *Transition) Waited() time.Duration { return max(t.To.Claim.At.Sub(t.From.ReadyAt), 0) }

// Ran is how long the claim was held that ended by the transition, at the time of its round.
func (t *Transition) Ran(now store.Time) time.Duration { return max(now.Sub(t.From.Claim.At), 0) }

// keepTransitions bounds the space for transitions that is kept for the next round, in their number.
const keepTransitions = 4096

// noTransitions is the space for those of a new round: that of the last one, which nobody reads any more.
func (l *Leader) noTransitions() []Transition {
	clear(l.transitions) // or the rows would live on
	if cap(l.transitions) > keepTransitions {
		l.transitions = nil
	}
	return l.transitions[:0]
}

// noteTransition lists the move among the transitions, if it is one.
func (c *Change) noteTransition() {
	if c.From != nil && c.From.State == c.To.State {
		return
	}
	t := Transition{Namespace: c.ns, ID: c.id, From: c.From, To: c.To}
	if c.To.State == task.Succeeded {
		t.Outcome = task.OutcomeSucceeded
	}
	c.r.Transitions = append(c.r.Transitions, t)
}

// noteOutcome adds to the task's last transition how its attempt ended. It stands at the end, or before a few of other tasks that
// it brought about.
func (c *Change) noteOutcome(o task.Outcome, f schema.Failure) {
	for i := len(c.r.Transitions) - 1; i >= 0; i-- {
		if t := &c.r.Transitions[i]; t.ID == c.id {
			t.Outcome, t.Failure = o, f
			return
		}
	}
}

// dies says whether a task becomes a dead letter or a poisoned task.
func dies(from, to *schema.Exec) bool {
	return from != nil && from.State != to.State && (to.State == task.Dead || to.State == task.Poisoned)
}

// Dies says whether the task becomes a dead letter or a poisoned task.
func (t *Transition) Dies() bool { return dies(t.From, t.To) }

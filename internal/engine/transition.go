package engine

import (
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Transition describes one step in a task's life: its creation, or a change from one state to another. A change within
// a state (an extension, an edit, a repeated claim) is not a transition, and neither is an enqueue that found an
// existing task: it writes nothing.
//
// The rows may be read, never written, and only until the leader begins its next round.
type Transition struct {
	Namespace string
	ID        task.ID
	From, To  *schema.Exec // From is nil for a new task
	// Outcome and Failure are those of the attempt that it ended. OutcomeNone: no attempt ended.
	Outcome task.Outcome
	Failure schema.Failure
}

// Created reports whether the task was created.
func (t *Transition) Created() bool { return t.From == nil }

// Claims reports whether an attempt began.
func (t *Transition) Claims() bool { return t.To.State == task.Claimed }

// Replays reports whether an ended task was replayed.
func (t *Transition) Replays() bool { return t.From != nil && t.From.State.Ended() }

// Attempt returns the number of the attempt that began or ended, or of the next one.
func (t *Transition) Attempt() int {
	if t.Outcome != task.OutcomeNone {
		return t.From.Attempt()
	}
	return t.To.Attempt()
}

// Worker returns the worker that holds the task, or held it until now, or "" if there is none.
func (t *Transition) Worker() string {
	if t.Claims() || t.Outcome != task.OutcomeNone {
		return t.To.Claim.Worker
	}
	return ""
}

// Waited returns how long the task was ready before the claim that the transition began or ended.
func (t *Transition) Waited() time.Duration { return max(t.To.Claim.At.Sub(t.From.ReadyAt), 0) }

// Ran returns how long the claim that the transition ended was held. Now is the time of the transition's round.
func (t *Transition) Ran(now store.Time) time.Duration { return max(now.Sub(t.From.Claim.At), 0) }

// keepTransitions bounds the capacity for transitions that is kept for the next round.
const keepTransitions = 4096

// noTransitions returns an empty slice for a new round. It reuses that of the last round, which is no longer read.
func (l *Leader) noTransitions() []Transition {
	clear(l.transitions) // so that the rows can be freed
	if cap(l.transitions) > keepTransitions {
		l.transitions = nil
	}
	return l.transitions[:0]
}

// noteTransition adds the change to the round's transitions, if it is one.
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

// noteOutcome sets the outcome of the attempt in the task's last transition. That is the last one of the list, or is
// followed by a few of other tasks that it caused.
func (c *Change) noteOutcome(o task.Outcome, f schema.Failure) {
	for i := len(c.r.Transitions) - 1; i >= 0; i-- {
		if t := &c.r.Transitions[i]; t.ID == c.id {
			t.Outcome, t.Failure = o, f
			return
		}
	}
}

// dies reports whether a task becomes a dead letter or a poisoned task.
func dies(from, to *schema.Exec) bool {
	return from != nil && from.State != to.State && (to.State == task.Dead || to.State == task.Poisoned)
}

// Dies reports whether the task becomes a dead letter or a poisoned task.
func (t *Transition) Dies() bool { return dies(t.From, t.To) }

package task

import "github.com/pawlq/pawl/pawltype"

// State is the exact state of a task, as a number that is stored: never renumber them. Its word is pawltype's.
type State uint8

const (
	Scheduled State = 1 + iota // waiting for its run_at
	Ready                      // can be claimed
	Claimed                    // a worker holds it under a lease
	Retrying                   // failed, waiting for its next attempt
	Succeeded                  // acked
	Discarded                  // ended on purpose
	Dead                       // a dead letter: should have succeeded
	Poisoned                   // its payload can't be read
	Cancelled                  // stopped by a caller
)

// States lists all states in the order of the constants.
var States = []State{Scheduled, Ready, Claimed, Retrying, Succeeded, Discarded, Dead, Poisoned, Cancelled}

var stateWords = [...]pawltype.State{Scheduled: pawltype.StateScheduled, Ready: pawltype.StateReady, Claimed: pawltype.StateClaimed,
	Retrying: pawltype.StateRetrying, Succeeded: pawltype.StateSucceeded, Discarded: pawltype.StateDiscarded, Dead: pawltype.StateDead,
	Poisoned: pawltype.StatePoisoned, Cancelled: pawltype.StateCancelled}

func (s State) String() string { return wordOf(stateWords[:], s) }

// wordOf returns the word for a number that is stored.
func wordOf[W ~string, N ~uint8](words []W, n N) string {
	if int(n) < len(words) {
		return string(words[n])
	}
	return "unknown"
}

// ParseState is the inverse of String.
func ParseState(s string) (State, bool) {
	for _, state := range States {
		if state.String() == s {
			return state, true
		}
	}
	return 0, false
}

// Waiting reports whether the task will be claimable without any intervention.
func (s State) Waiting() bool { return s == Scheduled || s == Ready || s == Retrying }

// Ended reports whether the task has ended. Only an operator's replay leads out of an end state.
func (s State) Ended() bool { return s >= Succeeded }

// Status returns the coarse status shown to callers.
func (s State) Status() string {
	switch s {
	case Scheduled, Ready, Retrying:
		return string(pawltype.StatusQueued)
	case Claimed:
		return string(pawltype.StatusProcessing)
	case Succeeded:
		return string(pawltype.StatusCompleted)
	case Dead, Discarded, Poisoned:
		return string(pawltype.StatusFailed)
	case Cancelled:
		return string(pawltype.StatusCancelled)
	}
	return "unknown"
}

// next holds the transitions of docs/lifecycle.md. A transition to the same state is an edit or an extension.
var next = map[State][]State{
	Scheduled: {Scheduled, Ready, Discarded, Cancelled},
	Ready:     {Ready, Scheduled, Claimed, Discarded, Cancelled},
	Claimed:   {Claimed, Ready, Scheduled, Retrying, Succeeded, Discarded, Dead, Poisoned, Cancelled},
	Retrying:  {Retrying, Ready, Discarded, Cancelled},
	Dead:      {Ready, Scheduled, Discarded},
	Poisoned:  {Ready, Scheduled, Discarded},
	Discarded: {Ready, Scheduled},
	Cancelled: {Ready, Scheduled},
}

// CanBecome reports whether a task may go from s to t in one step.
func (s State) CanBecome(t State) bool {
	for _, to := range next[s] {
		if to == t {
			return true
		}
	}
	return false
}

// Reasons of end states.
const (
	ReasonExhausted    = "attempts_exhausted" // dead: the last attempt failed
	ReasonNotRetryable = "not_retryable"      // dead: the handler said so
	ReasonLeaseLost    = "lease_lost"         // dead: the last attempt's worker vanished
	ReasonUnreadable   = "unreadable"         // poisoned: the payload can't be decoded; discarded: nor can the task itself
	ReasonHandler      = "handler"            // discarded: the handler said so
	ReasonExpired      = "expired"            // discarded: not started in time
	ReasonPurged       = "purged"             // discarded: its queue was purged
	ReasonOperator     = "operator"           // discarded by hand
	ReasonReplaced     = "replaced"           // discarded: a newer task of its unique key took its place
	ReasonMoved        = "moved"              // discarded: it lives on in another queue
	ReasonCaller       = "caller"             // cancelled by a call
)

// Outcome is how an attempt ended, as a number that is stored. Its word is pawltype's.
type Outcome uint8

const (
	OutcomeNone       Outcome = iota // it is still running
	OutcomeSucceeded                 // acked
	OutcomeFailed                    // failed; retried, or the last one
	OutcomeDead                      // failed, not retryable
	OutcomeDiscarded                 // the handler ended the task on purpose
	OutcomePoisoned                  // the payload can't be read
	OutcomeLeaseLost                 // the worker vanished: a crash
	OutcomeTimedOut                  // the run exceeded its timeout and its worker did not report it
	OutcomeReleased                  // given back, no attempt used
	OutcomeSnoozed                   // postponed, no attempt used
	OutcomeCancelled                 // the task was cancelled during the attempt
	OutcomeLeaderless                // its lease ran out while no leader served: no attempt used
)

var outcomeWords = [...]pawltype.Outcome{OutcomeSucceeded: pawltype.OutcomeSucceeded, OutcomeFailed: pawltype.OutcomeFailed,
	OutcomeDead: pawltype.OutcomeDead, OutcomeDiscarded: pawltype.OutcomeDiscarded, OutcomePoisoned: pawltype.OutcomePoisoned,
	OutcomeLeaseLost: pawltype.OutcomeLeaseLost, OutcomeTimedOut: pawltype.OutcomeTimedOut, OutcomeReleased: pawltype.OutcomeReleased,
	OutcomeSnoozed: pawltype.OutcomeSnoozed, OutcomeCancelled: pawltype.OutcomeCancelled, OutcomeLeaderless: pawltype.OutcomeLeaderless}

func (o Outcome) String() string { return wordOf(outcomeWords[:], o) }

// Priority orders the tasks of a queue, as a number that is stored; the smallest goes first. Its word is pawltype's.
type Priority uint8

const (
	High Priority = 1 + iota
	Normal
	Low
)

// Priorities lists all priorities, the highest first.
var Priorities = [...]Priority{High, Normal, Low}

var priorityWords = [...]pawltype.Priority{High: pawltype.High, Normal: pawltype.Normal, Low: pawltype.Low}

func (p Priority) String() string {
	if p == 0 {
		return "unknown"
	}
	return wordOf(priorityWords[:], p)
}

// ParsePriority is the inverse of String.
func ParsePriority(s string) (Priority, bool) {
	for _, p := range Priorities {
		if p.String() == s {
			return p, true
		}
	}
	return 0, false
}

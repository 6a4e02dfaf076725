package task

// State is the exact state of a task. The values are stored: never renumber them.
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

var stateNames = [...]string{"", "scheduled", "ready", "claimed", "retrying", "succeeded", "discarded", "dead", "poisoned", "cancelled"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
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
		return "queued"
	case Claimed:
		return "processing"
	case Succeeded:
		return "completed"
	case Dead, Discarded, Poisoned:
		return "failed"
	case Cancelled:
		return "cancelled"
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

// Outcome is how an attempt ended. The values are stored.
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

var outcomeNames = [...]string{"", "succeeded", "failed", "dead", "discarded", "poisoned", "lease_lost", "timed_out", "released", "snoozed", "cancelled", "leaderless"}

func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "unknown"
}

// Priority orders the tasks of a queue. The values are stored; the smallest goes first.
type Priority uint8

const (
	High Priority = 1 + iota
	Normal
	Low
)

// Priorities lists all priorities, the highest first.
var Priorities = [...]Priority{High, Normal, Low}

func (p Priority) String() string {
	switch p {
	case High:
		return "high"
	case Normal:
		return "normal"
	case Low:
		return "low"
	}
	return "unknown"
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

package pawltype

// State is the exact state of a task in its life cycle.
type State string

// States of a task.
const (
	StateScheduled State = "scheduled" // not due yet
	StateReady     State = "ready"     // can be claimed
	StateClaimed   State = "claimed"   // a worker holds it under a lease
	StateRetrying  State = "retrying"  // failed, waiting for its next attempt
	StateSucceeded State = "succeeded"
	StateDiscarded State = "discarded" // ended on purpose
	StateDead      State = "dead"      // a dead letter: should have succeeded
	StatePoisoned  State = "poisoned"  // its payload can't be read
	StateCancelled State = "cancelled"
)

// Ended reports whether the task has left the queue.
func (s State) Ended() bool {
	switch s {
	case StateSucceeded, StateDiscarded, StateDead, StatePoisoned, StateCancelled:
		return true
	}
	return false
}

// Status is the coarse state of a task.
type Status string

// Statuses of a task.
const (
	StatusQueued     Status = "queued"     // scheduled, ready, retrying
	StatusProcessing Status = "processing" // claimed
	StatusCompleted  Status = "completed"  // succeeded
	StatusFailed     Status = "failed"     // dead, discarded, poisoned
	StatusCancelled  Status = "cancelled"
)

// Outcome is how an attempt ended.
type Outcome string

// Outcomes of an attempt.
const (
	OutcomeSucceeded  Outcome = "succeeded"
	OutcomeFailed     Outcome = "failed"    // will be retried, or was the last attempt
	OutcomeDead       Outcome = "dead"      // not retryable
	OutcomeDiscarded  Outcome = "discarded" // ended on purpose
	OutcomePoisoned   Outcome = "poisoned"
	OutcomeLeaseLost  Outcome = "lease_lost" // the worker disappeared
	OutcomeTimedOut   Outcome = "timed_out"  // ran past its timeout, and the worker did not report it
	OutcomeReleased   Outcome = "released"   // given back, no attempt used
	OutcomeSnoozed    Outcome = "snoozed"    // put off, no attempt used
	OutcomeCancelled  Outcome = "cancelled"
	OutcomeLeaderless Outcome = "leaderless" // its lease expired while no broker was serving: no attempt used
)

// Failed reports whether the outcome is a failure of the handler. Failure metrics count these outcomes: a task that was discarded,
// snoozed, cancelled or given back has not failed.
func (o Outcome) Failed() bool { return o == OutcomeFailed || o == OutcomeDead || o == OutcomePoisoned }

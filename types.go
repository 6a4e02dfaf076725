package pawl

import "github.com/pawlq/pawl/pawltype"

// The types and words that programs write. Package pawltype describes each, and has the others, which calls return.
type (
	Error       = pawltype.Error       // a refusal by the broker, or by the client on its behalf
	EndedError  = pawltype.EndedError  // the task has ended other than by succeeding
	PanicError  = pawltype.PanicError  // a handler has panicked
	RetryPolicy = pawltype.RetryPolicy // how long a failed task waits for its next attempt
	UniqueOpts  = pawltype.UniqueOpts  // how a task holds a unique key
	GroupCounts = pawltype.GroupCounts // what ParentResult decodes for a task that follows a group
	Queues      = pawltype.Queues      // Weighted or Strict
	Weighted    = pawltype.Weighted    // takes tasks from queues in proportion to their weights: Weighted{"mail": 7, "default": 3}
	Strict      = pawltype.Strict      // takes tasks from the first queue that has one: Strict{"urgent", "default"}
	State       = pawltype.State
	Outcome     = pawltype.Outcome
	OnConflict  = pawltype.OnConflict

	PriorityLevel   = pawltype.Priority        // High, Normal or Low
	IncompleteError = pawltype.IncompleteError // a list is not complete
)

// Priorities. The default is Normal.
const (
	High   = pawltype.High
	Normal = pawltype.Normal
	Low    = pawltype.Low
)

// NoJitter and NoWait in a RetryPolicy mean 0. A zero field has a default.
const (
	NoJitter = pawltype.NoJitter
	NoWait   = pawltype.NoWait
)

// What happens to a task whose unique key another task holds.
const (
	OnConflictKeep     = pawltype.OnConflictKeep
	OnConflictReplace  = pawltype.OnConflictReplace
	OnConflictKeepLast = pawltype.OnConflictKeepLast
	OnConflictReject   = pawltype.OnConflictReject
)

// States of a task.
const (
	StateScheduled = pawltype.StateScheduled
	StateReady     = pawltype.StateReady
	StateClaimed   = pawltype.StateClaimed
	StateRetrying  = pawltype.StateRetrying
	StateSucceeded = pawltype.StateSucceeded
	StateDiscarded = pawltype.StateDiscarded
	StateDead      = pawltype.StateDead
	StatePoisoned  = pawltype.StatePoisoned
	StateCancelled = pawltype.StateCancelled
)

// Outcomes of an attempt, as OutcomeOf returns them.
const (
	OutcomeSucceeded = pawltype.OutcomeSucceeded
	OutcomeFailed    = pawltype.OutcomeFailed
	OutcomeDead      = pawltype.OutcomeDead
	OutcomeDiscarded = pawltype.OutcomeDiscarded
	OutcomePoisoned  = pawltype.OutcomePoisoned
	OutcomeLeaseLost = pawltype.OutcomeLeaseLost
	OutcomeReleased  = pawltype.OutcomeReleased
	OutcomeSnoozed   = pawltype.OutcomeSnoozed
	OutcomeCancelled = pawltype.OutcomeCancelled
)

// Reasons to refuse a call, and causes for which a handler's context ends (context.Cause). Test with errors.Is.
const (
	ErrInvalidArgument  = pawltype.ErrInvalidArgument
	ErrUnauthenticated  = pawltype.ErrUnauthenticated
	ErrPermissionDenied = pawltype.ErrPermissionDenied
	ErrNotFound         = pawltype.ErrNotFound
	ErrConflict         = pawltype.ErrConflict
	ErrStaleClaim       = pawltype.ErrStaleClaim
	ErrWrongState       = pawltype.ErrWrongState
	ErrPayloadTooLarge  = pawltype.ErrPayloadTooLarge
	ErrQueueFull        = pawltype.ErrQueueFull
	ErrRateLimited      = pawltype.ErrRateLimited
	ErrUnavailable      = pawltype.ErrUnavailable
	ErrInternal         = pawltype.ErrInternal
	ErrClosed           = pawltype.ErrClosed

	ErrLeaseLost = pawltype.ErrLeaseLost
	ErrCancelled = pawltype.ErrCancelled
	ErrDraining  = pawltype.ErrDraining
	ErrOnceHeld  = pawltype.ErrOnceHeld
)

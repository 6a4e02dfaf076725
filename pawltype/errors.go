package pawltype

import (
	"fmt"
	"strings"
	"time"
)

// ErrorCode is what went wrong, in a word that stays. It is an error, so that errors.Is tells whether another one has the code.
type ErrorCode string

// Error gives the code in words.
func (c ErrorCode) Error() string { return "pawl: " + strings.ReplaceAll(string(c), "_", " ") }

// What the broker refuses, and what becomes of handlers. Test with errors.Is; the details are in *Error.
const (
	ErrInvalidArgument  ErrorCode = "invalid_argument"
	ErrUnauthenticated  ErrorCode = "unauthenticated"
	ErrPermissionDenied ErrorCode = "permission_denied"
	ErrNotFound         ErrorCode = "not_found"
	// ErrConflict: the idempotency key or request id belongs to a task with another type or payload, the unique key belongs to
	// another task and OnConflict says reject, or the settings have another version.
	ErrConflict ErrorCode = "conflict"
	// ErrStaleClaim: the claim token no longer holds its task; Error.Reason says why.
	ErrStaleClaim ErrorCode = "stale_claim"
	// ErrWrongState: the task is in a state that does not allow this; Error.State says in which.
	ErrWrongState      ErrorCode = "wrong_state"
	ErrPayloadTooLarge ErrorCode = "payload_too_large"
	ErrQueueFull       ErrorCode = "queue_full"
	ErrRateLimited     ErrorCode = "rate_limited"
	// ErrUnavailable: no answer, after the client's own repeats. The call may or may not have happened.
	ErrUnavailable ErrorCode = "unavailable"
	// ErrInternal: the broker failed in a way that it does not explain; its log does.
	ErrInternal ErrorCode = "internal"

	// ErrClosed answers a call on a client after Close.
	ErrClosed ErrorCode = "client_closed"

	// The following are why the context of a handler ended, by context.Cause, and in middleware by errors.Is of what the handler
	// returned. The end of the task's timeout is context.DeadlineExceeded.

	// ErrLeaseLost: the claim no longer holds; another worker may run the task. What this handler returns changes nothing.
	ErrLeaseLost ErrorCode = "lease_lost"
	// ErrCancelled: a caller cancelled the task.
	ErrCancelled ErrorCode = "task_cancelled"
	// ErrDraining: the worker stops and its DrainTimeout is over. The task is released: no attempt is used.
	ErrDraining ErrorCode = "worker_draining"
	// ErrOnceHeld answers Once while another task has the effect under way. Returned by a handler, it puts the task off, as
	// Snooze does: no attempt is used.
	ErrOnceHeld ErrorCode = "once_key_held"
)

// Error is a refusal by the broker, or by the client on the broker's behalf.
type Error struct {
	Code       ErrorCode     // stable, as in the API
	Message    string        // for people
	Reason     string        // of stale_claim: "expired", "reclaimed", "cancelled", "completed"; of unavailable: "node_not_ready"
	Field      string        // of invalid_argument: the field, as in the API
	Holder     string        // of stale_claim, reclaimed: the worker that holds the task now
	State      State         // of wrong_state: where the task is
	RetryAfter time.Duration // when a repeat may help; 0: not said
}

// Error gives the code and message in one line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("pawl: ")
	b.WriteString(string(e.Code))
	if e.Reason != "" {
		fmt.Fprintf(&b, " (%s)", e.Reason)
	}
	if e.Message != "" {
		b.WriteString(": ")
		b.WriteString(e.Message)
	}
	return b.String()
}

// Is reports whether target is the error's code.
func (e *Error) Is(target error) bool { return target == error(e.Code) }

// PanicError is what a panic in a handler becomes.
type PanicError struct {
	Value any    // of the panic
	Stack []byte // of the goroutine that panicked
}

// Error gives the value.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap gives the value, if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

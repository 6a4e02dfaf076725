package pawltype

import (
	"fmt"
	"strings"
	"time"
)

// ErrorCode is the stable code of an error. It is itself an error, so errors.Is can test whether another error has it.
type ErrorCode string

// Error returns the code in words.
func (c ErrorCode) Error() string { return "pawl: " + strings.ReplaceAll(string(c), "_", " ") }

// Reasons to refuse a call, and causes for which a handler's context ends. Test with errors.Is; *Error has the details.
const (
	ErrInvalidArgument  ErrorCode = "invalid_argument"
	ErrUnauthenticated  ErrorCode = "unauthenticated"
	ErrPermissionDenied ErrorCode = "permission_denied"
	ErrNotFound         ErrorCode = "not_found"
	// ErrConflict: the idempotency key or request id belongs to a task with another type or payload, the unique key belongs to
	// another task and OnConflict is OnConflictReject, or the version of the settings has changed.
	ErrConflict ErrorCode = "conflict"
	// ErrStaleClaim: the claim token no longer holds its task; Error.Reason says why.
	ErrStaleClaim ErrorCode = "stale_claim"
	// ErrWrongState: the task is in a state that does not allow this; Error.State is that state.
	ErrWrongState      ErrorCode = "wrong_state"
	ErrPayloadTooLarge ErrorCode = "payload_too_large"
	ErrQueueFull       ErrorCode = "queue_full"
	ErrRateLimited     ErrorCode = "rate_limited"
	// ErrUnavailable: no response, despite the client's own retries. The call may or may not have taken effect.
	ErrUnavailable ErrorCode = "unavailable"
	// ErrInternal: the broker failed for reasons that only its log explains.
	ErrInternal ErrorCode = "internal"

	// ErrClosed is returned by calls on a client after Close.
	ErrClosed ErrorCode = "client_closed"

	// The following are causes for which a handler's context ends: see context.Cause. In middleware, test for them with errors.Is
	// in the handler's error. When the task's timeout expires, the cause is context.DeadlineExceeded.

	// ErrLeaseLost: the claim is no longer valid; another worker may run the task. What this handler returns has no effect.
	ErrLeaseLost ErrorCode = "lease_lost"
	// ErrCancelled: a caller cancelled the task.
	ErrCancelled ErrorCode = "task_cancelled"
	// ErrDraining: the worker is stopping and its DrainTimeout has passed. The task is released: no attempt is used.
	ErrDraining ErrorCode = "worker_draining"
	// ErrOnceHeld is returned by Once while another task is working on the effect. A handler that returns it puts its task off, as
	// with Snooze: no attempt is used.
	ErrOnceHeld ErrorCode = "once_key_held"
)

// Error is a refusal by the broker, or by the client on the broker's behalf.
type Error struct {
	Code       ErrorCode     // stable, as in the API
	Message    string        // for people
	Reason     string        // for stale_claim: "expired", "reclaimed", "cancelled", "completed"; for unavailable: "node_not_ready"
	Field      string        // for invalid_argument: the field, as in the API
	Holder     string        // for stale_claim, reclaimed: the worker that holds the task now
	State      State         // for wrong_state: the task's state
	RetryAfter time.Duration // when a retry may help; 0: unknown
}

// Error returns the code and message in one line.
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

// PanicError is the error of a handler that panicked.
type PanicError struct {
	Value any    // passed to panic
	Stack []byte // of the goroutine that panicked
}

// Error returns the value as text.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value, if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

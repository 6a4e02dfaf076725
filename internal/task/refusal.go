package task

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Code is the kind of a refusal. The codes are part of the public contract.
type Code string

const (
	CodeInvalidArgument  Code = "invalid_argument"
	CodeUnauthenticated  Code = "unauthenticated"
	CodePermissionDenied Code = "permission_denied"
	CodeNotFound         Code = "not_found"
	CodeConflict         Code = "conflict"
	CodeStaleClaim       Code = "stale_claim"
	CodeWrongState       Code = "wrong_state"
	CodePayloadTooLarge  Code = "payload_too_large"
	CodeQueueFull        Code = "queue_full"
	CodeRateLimited      Code = "rate_limited"
	CodeUnavailable      Code = "unavailable"
)

// Reasons of a stale claim.
const (
	StaleExpired   = "expired"   // the lease ended; not claimed again yet
	StaleReclaimed = "reclaimed" // another claim holds the task, or held it
	StaleCancelled = "cancelled" // the task was cancelled
	StaleCompleted = "completed" // the attempt has already ended
)

// ReasonNotReady is the reason of a node that has lost contact with its cluster, or has none yet. Another node may well answer.
const ReasonNotReady = "node_not_ready"

// Error is a refusal: the call was understood, and nothing was changed.
type Error struct {
	Code       Code
	Message    string
	Reason     string        // of a stale claim; ReasonNotReady of unavailable
	Field      string        // of an invalid argument: its name in the API
	Holder     string        // of a reclaimed claim: the worker that holds the task
	State      State         // of a wrong state
	RetryAfter time.Duration // how long to wait before a retry
}

func (e *Error) Error() string { return e.Message }

// Is matches the sentinels below: the same code, and the same reason if the target has one.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && (t.Reason == "" || t.Reason == e.Reason)
}

// Sentinels for errors.Is.
var (
	ErrInvalidArgument = &Error{Code: CodeInvalidArgument}
	ErrNotFound        = &Error{Code: CodeNotFound}
	ErrConflict        = &Error{Code: CodeConflict}
	ErrStaleClaim      = &Error{Code: CodeStaleClaim}
	ErrWrongState      = &Error{Code: CodeWrongState}
	ErrPayloadTooLarge = &Error{Code: CodePayloadTooLarge}
	ErrQueueFull       = &Error{Code: CodeQueueFull}
	ErrUnavailable     = &Error{Code: CodeUnavailable}
	ErrNotReady        = &Error{Code: CodeUnavailable, Reason: ReasonNotReady}
)

// Invalid refuses the value of a field, naming the rule that it breaks.
func Invalid(field, format string, args ...any) *Error {
	return &Error{Code: CodeInvalidArgument, Field: field, Message: field + ": " + fmt.Sprintf(format, args...)}
}

// NoneOf refuses a word that a field does not accept.
func NoneOf[W ~string](field, word string, words []W) *Error {
	return Invalid(field, "%q is not one of %s", clip(word), Listed(words))
}

// Listed lists words for a message: "a, b, c".
func Listed[W ~string](words []W) string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = string(w)
	}
	return strings.Join(all, ", ")
}

// NotFound refuses a call on an object that does not exist.
func NotFound(what, name string) *Error {
	return &Error{Code: CodeNotFound, Message: fmt.Sprintf("%s %q: not found", what, clip(name))}
}

// WrongState refuses a verb that the task's state does not allow.
func WrongState(verb string, id ID, s State) *Error {
	return &Error{Code: CodeWrongState, State: s, Message: fmt.Sprintf("%s %q: the task is %s", verb, id, s)}
}

// Unavailable refuses a call that did not run, but may be retried later.
func Unavailable(after time.Duration, format string, args ...any) *Error {
	return &Error{Code: CodeUnavailable, RetryAfter: after, Message: fmt.Sprintf(format, args...)}
}

// NotReady is Unavailable, for a node that other nodes can stand in for.
func NotReady(format string, args ...any) *Error {
	return &Error{Code: CodeUnavailable, Reason: ReasonNotReady, RetryAfter: time.Second, Message: fmt.Sprintf(format, args...)}
}

// AsError returns the refusal in err's chain.
func AsError(err error) (*Error, bool) { return errors.AsType[*Error](err) }

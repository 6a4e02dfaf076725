package pawl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// What the broker refuses. Test with errors.Is; the details are in *Error.
var (
	ErrInvalidArgument  = errors.New("pawl: invalid argument")
	ErrUnauthenticated  = errors.New("pawl: unauthenticated")
	ErrPermissionDenied = errors.New("pawl: permission denied")
	ErrNotFound         = errors.New("pawl: not found")
	// ErrConflict: the idempotency key or request id belongs to a task with another type or payload, the unique key to another
	// task and OnConflict says reject, or settings have another version.
	ErrConflict = errors.New("pawl: conflict")
	// ErrStaleClaim: the claim token no longer holds its task; Error.Reason says why.
	ErrStaleClaim = errors.New("pawl: stale claim")
	// ErrWrongState: the task is in a state that does not allow this; Error.State says in which.
	ErrWrongState      = errors.New("pawl: wrong state")
	ErrPayloadTooLarge = errors.New("pawl: payload too large")
	ErrQueueFull       = errors.New("pawl: queue full")
	ErrRateLimited     = errors.New("pawl: rate limited")
	// ErrUnavailable: no answer, after the client's own repeats. The call may or may not have happened.
	ErrUnavailable = errors.New("pawl: unavailable")
	// ErrInternal: the broker failed in a way that it does not explain; its log does.
	ErrInternal = errors.New("pawl: internal error")
)

// ErrClosed is the answer to a call on a client after Close.
var ErrClosed = errors.New("pawl: client closed")

// Why the context of a handler ended, by context.Cause, and in middleware by errors.Is of what the handler returned. The end of the
// task's timeout is context.DeadlineExceeded.
var (
	// ErrLeaseLost: the claim no longer holds; another worker may run the task. What this handler returns changes nothing.
	ErrLeaseLost = errors.New("pawl: lease lost")
	// ErrCancelled: a caller cancelled the task.
	ErrCancelled = errors.New("pawl: task cancelled")
	// ErrDraining: the worker stops and its DrainTimeout is over. The task is released: no attempt is used.
	ErrDraining = errors.New("pawl: worker draining")
)

const (
	codeInvalidArgument = "invalid_argument"
	codeNotFound        = "not_found"
	codeStaleClaim      = "stale_claim"
	codeWrongState      = "wrong_state"
	codePayloadTooLarge = "payload_too_large"
	codeRateLimited     = "rate_limited"
	codeUnavailable     = "unavailable"
	// reasonNotReady is the reason of an unavailable node that others can stand in for.
	reasonNotReady = "node_not_ready"
	codeInternal   = "internal"
)

// sentinelOf maps the stable codes of the API to sentinels. Read only.
var sentinelOf = map[string]error{
	codeInvalidArgument: ErrInvalidArgument,
	"unauthenticated":   ErrUnauthenticated,
	"permission_denied": ErrPermissionDenied,
	codeNotFound:        ErrNotFound,
	"conflict":          ErrConflict,
	codeStaleClaim:      ErrStaleClaim,
	codeWrongState:      ErrWrongState,
	codePayloadTooLarge: ErrPayloadTooLarge,
	"queue_full":        ErrQueueFull,
	codeRateLimited:     ErrRateLimited,
	codeUnavailable:     ErrUnavailable,
	codeInternal:        ErrInternal,
}

// Error is a refusal by the broker, or by the client on the broker's behalf.
type Error struct {
	Code       string        // stable: "invalid_argument", "not_found", "stale_claim", ...
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
	b.WriteString(e.Code)
	if e.Reason != "" {
		fmt.Fprintf(&b, " (%s)", e.Reason)
	}
	if e.Message != "" {
		b.WriteString(": ")
		b.WriteString(e.Message)
	}
	return b.String()
}

// Is reports whether target is the sentinel of the error's code.
func (e *Error) Is(target error) bool {
	sentinel, ok := sentinelOf[e.Code]
	return ok && target == sentinel
}

func invalid(field, format string, args ...any) *Error {
	return &Error{Code: codeInvalidArgument, Field: field, Message: field + ": " + fmt.Sprintf(format, args...)}
}

// errorOf decodes the refusal of a single item.
func errorOf(p *pawlv1.Error) *Error {
	return &Error{
		Code:       p.GetCode(),
		Message:    p.GetMessage(),
		Reason:     p.GetReason(),
		Field:      p.GetField(),
		Holder:     p.GetHolder(),
		State:      stateOf(p.GetState()),
		RetryAfter: p.GetRetryAfter().AsDuration(),
	}
}

// callError turns what gRPC returned for a call into an *Error, or into the error of ctx if that has ended.
func callError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if own, ok := errors.AsType[*Error](err); ok { // of a keyring: the call was not made
		return own
	}
	st, ok := status.FromError(err)
	if !ok {
		return &Error{Code: codeInternal, Message: err.Error()}
	}
	for _, d := range st.Details() {
		if p, ok := d.(*pawlv1.Error); ok {
			return errorOf(p)
		}
	}
	return &Error{Code: codeOfStatus(st.Code()), Message: st.Message()}
}

func codeOfStatus(c codes.Code) string {
	switch c {
	case codes.InvalidArgument, codes.OutOfRange, codes.Unimplemented:
		return codeInvalidArgument
	case codes.Unauthenticated:
		return "unauthenticated"
	case codes.PermissionDenied:
		return "permission_denied"
	case codes.NotFound:
		return codeNotFound
	case codes.AlreadyExists:
		return "conflict"
	case codes.FailedPrecondition:
		return codeWrongState
	case codes.ResourceExhausted:
		return codeRateLimited
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded, codes.Aborted:
		return codeUnavailable // the context of the call has not ended: the other side gave up
	default:
		return codeInternal
	}
}

// retryAfter is how long the broker asked to wait, 0 if it did not, or if the next try may take another node.
func retryAfter(err error) time.Duration {
	var e *Error
	if errors.As(err, &e) && !didNotRun(e) {
		return e.RetryAfter
	}
	return 0
}

// didNotRun reports whether the call was refused by a node that is not ready.
func didNotRun(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == codeUnavailable && e.Reason == reasonNotReady
}

// notReady reports whether what a call returned came from a node that has no contact with its cluster.
func notReady(err error) bool {
	return isUnavailable(err) && didNotRun(callError(context.Background(), err))
}

// isUnavailable reports whether what a call returned says so, as gRPC or as a frame's answer.
func isUnavailable(err error) bool {
	if own, ok := errors.AsType[*Error](err); ok {
		return own.Code == codeUnavailable
	}
	return status.Code(err) == codes.Unavailable
}

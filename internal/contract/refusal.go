package contract

import (
	"fmt"
	"net/http"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/task"
)

// CodeInternal is the code of errors that must not happen: a bug here, whose details are logged and not sent to the caller.
const CodeInternal task.Code = "internal"

// Status is an error code in terms of gRPC and HTTP.
type Status struct {
	GRPC  codes.Code
	HTTP  int
	Title string
}

// StatusOf is the one place that maps errors to codes. A code that it does not know becomes an internal error.
func StatusOf(code task.Code) Status {
	f, ok := statuses[code]
	if !ok {
		f = statuses[CodeInternal]
	}
	return f
}

var statuses = map[task.Code]Status{
	task.CodeInvalidArgument:  {codes.InvalidArgument, http.StatusBadRequest, "Invalid argument"},
	task.CodeUnauthenticated:  {codes.Unauthenticated, http.StatusUnauthorized, "Unauthenticated"},
	task.CodePermissionDenied: {codes.PermissionDenied, http.StatusForbidden, "Permission denied"},
	task.CodeNotFound:         {codes.NotFound, http.StatusNotFound, "Not found"},
	task.CodeConflict:         {codes.AlreadyExists, http.StatusConflict, "Conflict"},
	task.CodeStaleClaim:       {codes.FailedPrecondition, http.StatusConflict, "Stale claim"},
	task.CodeWrongState:       {codes.FailedPrecondition, http.StatusConflict, "Wrong state"},
	task.CodePayloadTooLarge:  {codes.InvalidArgument, http.StatusRequestEntityTooLarge, "Payload too large"},
	task.CodeQueueFull:        {codes.ResourceExhausted, http.StatusTooManyRequests, "Queue full"},
	task.CodeRateLimited:      {codes.ResourceExhausted, http.StatusTooManyRequests, "Rate limited"},
	task.CodeUnavailable:      {codes.Unavailable, http.StatusServiceUnavailable, "Unavailable"},
	CodeInternal:              {codes.Internal, http.StatusInternalServerError, "Internal error"},
}

// MaxErrorText bounds an error's message in bytes: it quotes parts of what the caller sent.
const MaxErrorText = 4 << 10

// ErrorProto converts an error to the protocol's form.
func ErrorProto(e *task.Error) *pawlv1.Error {
	p := &pawlv1.Error{Code: string(e.Code), Message: task.Cut(e.Message, MaxErrorText), Reason: e.Reason, Field: e.Field,
		Holder: e.Holder, State: pawlv1.State(e.State)}
	if e.RetryAfter > 0 {
		p.RetryAfter = durationpb.New(e.RetryAfter)
	}
	return p
}

// FieldOf prefixes the field of an error with its parent's path.
func FieldOf(parent string, err error) error {
	e, ok := task.AsError(err)
	if !ok || e.Field == "" {
		return err
	}
	inner := *e
	inner.Field, inner.Message = parent+"."+e.Field, parent+"."+e.Message
	return &inner
}

// Empty refuses a value that is given but empty, such as an unset variable. If it were taken for none, the call would do more than its
// caller meant: cancel all tasks instead of those of a key.
func Empty(field string) error { return task.Invalid(field, "is empty: leave it out") }

// Item returns the path of an item of a list.
func Item(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

// noRoomRetryAfter is when a request that found no memory may be retried.
const noRoomRetryAfter = 5 * time.Second

// NoRoom refuses a large request that has waited for memory in vain.
func NoRoom() error {
	return task.Unavailable(noRoomRetryAfter, "too many large requests are being received by this server, in total or for this namespace")
}

// NoRoomToAnswer refuses a call whose answer has found no memory.
func NoRoomToAnswer() error {
	return task.Unavailable(noRoomRetryAfter, "too many large answers are being sent by this server, in total, for this namespace or "+
		"for this caller")
}

// TooManyParts refuses a request that would take too much memory once decoded.
func TooManyParts(field string) error {
	return task.Invalid(field, "has so many small parts that decoding it would take more than %d bytes of memory beyond its length",
		MaxExtra)
}

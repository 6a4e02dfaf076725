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

// CodeInternal is the code of what must not happen: a bug here, told to the log and not to the caller.
const CodeInternal task.Code = "internal"

// Face is how a refusal looks from outside.
type Face struct {
	GRPC  codes.Code
	HTTP  int
	Title string
}

// FaceOf is the one place where refusals become codes. A code that it does not know is an internal error.
func FaceOf(code task.Code) Face {
	f, ok := faces[code]
	if !ok {
		f = faces[CodeInternal]
	}
	return f
}

var faces = map[task.Code]Face{
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

// MaxErrorText bounds the message of a refusal in bytes: it holds pieces of what the caller sent.
const MaxErrorText = 4 << 10

// ErrorProto is a refusal as the protocol has it.
func ErrorProto(e *task.Error) *pawlv1.Error {
	p := &pawlv1.Error{Code: string(e.Code), Message: task.Cut(e.Message, MaxErrorText), Reason: e.Reason, Field: e.Field,
		Holder: e.Holder, State: pawlv1.State(e.State)}
	if e.RetryAfter > 0 {
		p.RetryAfter = durationpb.New(e.RetryAfter)
	}
	return p
}

// FieldOf says in which field of a request the field of a refusal lies.
func FieldOf(parent string, err error) error {
	e, ok := task.AsError(err)
	if !ok || e.Field == "" {
		return err
	}
	inner := *e
	inner.Field, inner.Message = parent+"."+e.Field, parent+"."+e.Message
	return &inner
}

// Item is the path of an item of a list.
func Item(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

// noRoomRest is when a request for which there was no room may be sent again.
const noRoomRest = 5 * time.Second

// NoRoom refuses a large request that has waited for room.
func NoRoom() error {
	return task.Unavailable(noRoomRest, "too many large requests are on their way to this server, in all or of this namespace")
}

// TooManyParts refuses a request of which too much memory would be made.
func TooManyParts(field string) error {
	return task.Invalid(field, "has so many small parts that more than %d bytes of memory, beyond its length, would be made of them", MaxExtra)
}

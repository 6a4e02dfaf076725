package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/task"
)

// codeInternal is the code of what must not happen: a bug here, told to the log and not to the caller.
const codeInternal task.Code = "internal"

// face is how a refusal looks from outside.
type face struct {
	grpc  codes.Code
	http  int
	title string
}

// faces is the one place where refusals become codes.
var faces = map[task.Code]face{
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
	codeInternal:              {codes.Internal, http.StatusInternalServerError, "Internal error"},
}

// retryAfterDefault is what callers are told who may try again and were not told when.
const retryAfterDefault = time.Second

// refusal makes a refusal of any error. What is none is logged, and its words stay inside.
func (g *Gateway) refusal(err error) *task.Error {
	if e, ok := task.AsError(err); ok {
		if e.RetryAfter == 0 && (e.Code == task.CodeUnavailable || e.Code == task.CodeQueueFull || e.Code == task.CodeRateLimited) {
			again := *e
			again.RetryAfter = retryAfterDefault
			return &again
		}
		return e
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return task.Unavailable(retryAfterDefault, "the call ended before its answer: whether it ran is not known")
	}
	g.log.Error("a call failed within", "error", err)
	return &task.Error{Code: codeInternal, Message: "an error within the server; its log says more"}
}

// statusOf makes the gRPC status of an error.
func (g *Gateway) statusOf(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil { // the caller is gone, and says so itself
		return status.FromContextError(ctx.Err()).Err()
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	e := g.refusal(err)
	f, ok := faces[e.Code]
	if !ok {
		f = faces[codeInternal]
	}
	st, bad := status.New(f.grpc, e.Message).WithDetails(errorProto(e))
	if bad != nil {
		return status.Error(f.grpc, e.Message)
	}
	return st.Err()
}

// itemError is an error as the answer for one item of many.
func (g *Gateway) itemError(err error) *pawlv1.Error { return errorProto(g.refusal(err)) }

func errorProto(e *task.Error) *pawlv1.Error {
	p := &pawlv1.Error{Code: string(e.Code), Message: task.Cut(e.Message, maxMessageText), Reason: e.Reason, Field: e.Field,
		Holder: e.Holder, State: stateProto(e.State)}
	if e.RetryAfter > 0 {
		p.RetryAfter = durationpb.New(e.RetryAfter)
	}
	return p
}

// maxMessageText bounds a message: it holds pieces of what the caller sent.
const maxMessageText = 4 << 10

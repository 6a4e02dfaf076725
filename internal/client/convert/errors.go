package convert

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// reasonNotReady is the reason of an unavailable node for which others can stand in.
const reasonNotReady = "node_not_ready"

func Invalid(field, format string, args ...any) *pawltype.Error {
	return &pawltype.Error{Code: pawltype.ErrInvalidArgument, Field: field, Message: field + ": " + fmt.Sprintf(format, args...)}
}

// Error decodes the refusal of a single item.
func Error(p *pawlv1.Error) *pawltype.Error {
	return &pawltype.Error{
		Code:       pawltype.ErrorCode(p.GetCode()),
		Message:    p.GetMessage(),
		Reason:     p.GetReason(),
		Field:      p.GetField(),
		Holder:     p.GetHolder(),
		State:      State(p.GetState()),
		RetryAfter: p.GetRetryAfter().AsDuration(),
	}
}

// CallError converts what gRPC returned for a call to an *Error, or returns the error of ctx if that has ended.
func CallError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if own, ok := errors.AsType[*pawltype.Error](err); ok { // from a keyring: the call was not made
		return own
	}
	st := status.Convert(err)
	for _, d := range st.Details() {
		if p, ok := d.(*pawlv1.Error); ok {
			return Error(p)
		}
	}
	refused := &pawltype.Error{Code: codeOfStatus(st.Code()), Message: st.Message()}
	if st.Code() == codes.Unimplemented {
		return unimplemented{refused}
	}
	return refused
}

// unimplemented is the error of a call that the other side does not have.
type unimplemented struct{ refused *pawltype.Error }

func (e unimplemented) Error() string { return e.refused.Error() }
func (e unimplemented) Unwrap() error { return e.refused }

// Unimplemented reports whether the other side does not have the call: it is older, or not a broker but a load balancer
// without a route to one.
func Unimplemented(err error) bool {
	_, ok := errors.AsType[unimplemented](err)
	return ok
}

func codeOfStatus(c codes.Code) pawltype.ErrorCode {
	switch c {
	case codes.InvalidArgument, codes.OutOfRange, codes.Unimplemented:
		return pawltype.ErrInvalidArgument
	case codes.Unauthenticated:
		return pawltype.ErrUnauthenticated
	case codes.PermissionDenied:
		return pawltype.ErrPermissionDenied
	case codes.NotFound:
		return pawltype.ErrNotFound
	case codes.AlreadyExists:
		return pawltype.ErrConflict
	case codes.FailedPrecondition:
		return pawltype.ErrWrongState
	case codes.ResourceExhausted:
		return pawltype.ErrRateLimited
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded, codes.Aborted:
		return pawltype.ErrUnavailable // the context of the call has not ended: the other side gave up
	default:
		return pawltype.ErrInternal
	}
}

// RetryAfter returns how long the broker asked to wait; 0 if it did not, or if the next try may reach another node.
func RetryAfter(err error) time.Duration {
	var e *pawltype.Error
	if errors.As(err, &e) && !DidNotRun(e) {
		return e.RetryAfter
	}
	return 0
}

// DidNotRun reports whether the call was refused by a node that is not ready.
func DidNotRun(err error) bool {
	e, ok := errors.AsType[*pawltype.Error](err)
	return ok && e.Code == pawltype.ErrUnavailable && e.Reason == reasonNotReady
}

// NotReady reports whether the error of a call came from a node that has no contact with its cluster.
func NotReady(err error) bool {
	return DidNotRun(CallError(context.Background(), err))
}

// IsUnavailable reports whether the error of a call means unavailable, as a gRPC status or as the response of a frame.
func IsUnavailable(err error) bool {
	if own, ok := errors.AsType[*pawltype.Error](err); ok {
		return own.Code == pawltype.ErrUnavailable
	}
	return status.Code(err) == codes.Unavailable
}

// FieldIn prefixes the field of a refusal with the field of the request that contains it.
func FieldIn(parent string, err error) error {
	e, ok := errors.AsType[*pawltype.Error](err)
	if !ok || e.Field == "" {
		return fmt.Errorf("%s: %w", parent, err)
	}
	named := *e
	named.Field, named.Message = parent+"."+e.Field, parent+"."+e.Message
	return &named
}

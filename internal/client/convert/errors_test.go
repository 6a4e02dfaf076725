package convert

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/pawltype"
)

// refused returns what gRPC returns for a refusal by the broker.
func refused(p *pawlv1.Error) error {
	st, _ := status.New(codes.Unavailable, "gRPC's words").WithDetails(&durationpb.Duration{}, p)
	return st.Err()
}

// Each error of a call is a refusal with a code, or that of the caller's context.
func TestCallErrors(t *testing.T) {
	own := &pawltype.Error{Code: pawltype.ErrConflict}
	ended, end := context.WithCancel(t.Context())
	end()
	for what, x := range map[string]struct {
		ctx       context.Context
		err, want error
		text      string
	}{
		"none":              {t.Context(), nil, nil, ""},
		"none, after all":   {ended, nil, nil, ""},
		"the context ended": {ended, refused(&pawlv1.Error{Code: "conflict"}), context.Canceled, "context canceled"},
		"of a keyring":      {t.Context(), fmt.Errorf("seal: %w", own), own, own.Error()},
		"not of gRPC":       {t.Context(), errors.New("boom"), pawltype.ErrInternal, "pawl: internal: boom"},
		"with details": {t.Context(), refused(&pawlv1.Error{Code: "stale_claim", Reason: "expired", Message: "late"}),
			pawltype.ErrStaleClaim, "pawl: stale_claim (expired): late"},
		"without": {t.Context(), status.Error(codes.NotFound, "gone"), pawltype.ErrNotFound, "pawl: not_found: gone"},
	} {
		got := CallError(x.ctx, x.err)
		if !errors.Is(got, x.want) || got != nil && got.Error() != x.text {
			t.Errorf("%s: got %v, want %v, %q", what, got, x.want, x.text)
		}
	}
	for code, want := range map[codes.Code]pawltype.ErrorCode{
		codes.InvalidArgument: pawltype.ErrInvalidArgument, codes.OutOfRange: pawltype.ErrInvalidArgument,
		codes.Unimplemented: pawltype.ErrInvalidArgument, codes.Unauthenticated: pawltype.ErrUnauthenticated,
		codes.PermissionDenied: pawltype.ErrPermissionDenied, codes.NotFound: pawltype.ErrNotFound,
		codes.AlreadyExists: pawltype.ErrConflict, codes.FailedPrecondition: pawltype.ErrWrongState,
		codes.ResourceExhausted: pawltype.ErrRateLimited, codes.Unavailable: pawltype.ErrUnavailable,
		codes.Canceled: pawltype.ErrUnavailable, codes.DeadlineExceeded: pawltype.ErrUnavailable, codes.Aborted: pawltype.ErrUnavailable,
		codes.Internal: pawltype.ErrInternal, codes.DataLoss: pawltype.ErrInternal, codes.Unknown: pawltype.ErrInternal,
	} {
		if got := CallError(t.Context(), status.Error(code, "")); !errors.Is(got, want) {
			t.Errorf("%s: got %v, want %v", code, got, want)
		}
	}
}

// A node that is not ready can be replaced by another; one that is unavailable says when to retry.
func TestUnavailable(t *testing.T) {
	wait := durationpb.New(time.Second)
	for what, x := range map[string]struct {
		err                              error
		unavailable, notReady, didNotRun bool
		after                            time.Duration
	}{
		"none":              {},
		"away":              {err: status.Error(codes.Unavailable, ""), unavailable: true},
		"away for a second": {err: refused(&pawlv1.Error{Code: "unavailable", RetryAfter: wait}), unavailable: true},
		"not ready": {err: refused(&pawlv1.Error{Code: "unavailable", Reason: "node_not_ready", RetryAfter: wait}),
			unavailable: true, notReady: true},
		"not ready, as read": {err: fmt.Errorf("x: %w", &pawltype.Error{Code: pawltype.ErrUnavailable, Reason: "node_not_ready",
			RetryAfter: time.Second}), unavailable: true, notReady: true, didNotRun: true},
		"away, as read": {err: &pawltype.Error{Code: pawltype.ErrUnavailable, RetryAfter: time.Second}, unavailable: true,
			after: time.Second},
		"full": {err: &pawltype.Error{Code: pawltype.ErrQueueFull, Reason: "node_not_ready", RetryAfter: time.Minute},
			after: time.Minute},
		"of another code": {err: status.Error(codes.NotFound, "")},
		"not of gRPC":     {err: errors.New("boom")},
	} {
		got := fmt.Sprint(IsUnavailable(x.err), NotReady(x.err), DidNotRun(x.err), RetryAfter(x.err))
		if want := fmt.Sprint(x.unavailable, x.notReady, x.didNotRun, x.after); got != want {
			t.Errorf("%s: got unavailable, not ready, did not run, retry after %s, want %s", what, got, want)
		}
	}
}

func TestFieldIn(t *testing.T) {
	inner := Invalid("payload", "is %s", "bad")
	err := FieldIn("then[0]", inner)
	if fieldOf(err) != "then[0].payload" || err.Error() != "pawl: invalid_argument: then[0].payload: is bad" || inner.Field != "payload" {
		t.Errorf("FieldIn = %v of field %q, from %v", err, fieldOf(err), inner)
	}
	for want, err := range map[string]error{"then[0]: boom": errors.New("boom"), "then[0]: pawl: conflict": &pawltype.Error{
		Code: pawltype.ErrConflict}} {
		if got := FieldIn("then[0]", err); got.Error() != want || !errors.Is(got, err) {
			t.Errorf("FieldIn = %v, want %s", got, want)
		}
	}
}

// veryLong is an error whose type has a long name.
type veryLong[T any] struct{ _ T }

func (veryLong[T]) Error() string { return "long" }

// What the attempt log records of an error: the type of the innermost, a panic with its stack, a timeout.
func TestTaskErrors(t *testing.T) {
	if TaskError(nil) != nil {
		t.Error("TaskError(nil) is not nil")
	}
	type long = veryLong[veryLong[veryLong[veryLong[veryLong[veryLong[veryLong[int]]]]]]]
	for _, x := range []struct {
		err  error
		want string
	}{
		{errors.New("boom"), "boom *errors.errorString "},
		{fmt.Errorf("import: %w", errors.New("boom")), "import: boom *errors.errorString "},
		{fmt.Errorf("import: %w", context.DeadlineExceeded), "import: context deadline exceeded timeout "},
		{&pawltype.PanicError{Value: "oh", Stack: []byte("stack")}, "panic: oh panic stack"},
	} {
		p := TaskError(x.err)
		if got := p.Message + " " + p.Type + " " + p.Stack; got != x.want {
			t.Errorf("%v: got %q, want %q", x.err, got, x.want)
		}
	}
	p := TaskError(fmt.Errorf("%s%w", strings.Repeat("x", 9<<10), long{}))
	if len(p.Message) != maxErrorText || len(p.Type) != 256 {
		t.Errorf("the message has %d bytes, and the type %d", len(p.Message), len(p.Type))
	}
}

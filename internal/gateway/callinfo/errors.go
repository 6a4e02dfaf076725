package callinfo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"google.golang.org/grpc/status"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// retryAfterDefault is sent with retryable errors that don't say when to retry.
const retryAfterDefault = time.Second

// Errors converts errors to those that callers get. It logs internal errors.
type Errors struct{ Log *slog.Logger }

// Refusal converts any error to a *task.Error. Other errors are logged, and their text is not disclosed.
func (g Errors) Refusal(err error) *task.Error {
	if e, ok := task.AsError(err); ok {
		if e.RetryAfter == 0 && (e.Code == task.CodeUnavailable || e.Code == task.CodeQueueFull || e.Code == task.CodeRateLimited) {
			again := *e
			again.RetryAfter = retryAfterDefault
			return &again
		}
		return e
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return task.Unavailable(retryAfterDefault, "the call ended before its answer: whether it took effect is not known")
	}
	g.Log.Error("a call failed with an internal error", "error", err)
	return &task.Error{Code: contract.CodeInternal, Message: "internal error; see the server's log"}
}

// Status converts an error to a gRPC status.
func (g Errors) Status(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil { // the caller is gone, and knows that itself
		return status.FromContextError(ctx.Err()).Err()
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	e := g.Refusal(err)
	code := contract.StatusOf(e.Code).GRPC
	st, bad := status.New(code, e.Message).WithDetails(contract.ErrorProto(e))
	if bad != nil {
		return status.Error(code, e.Message)
	}
	return st.Err()
}

// Item converts an error to the result of one item of many.
func (g Errors) Item(err error) *pawlv1.Error { return contract.ErrorProto(g.Refusal(err)) }

// ErrorOf returns the error of a call: if its token ended first, that is the error.
func ErrorOf(ctx context.Context, err error) error {
	if cause, refused := task.AsError(context.Cause(ctx)); refused {
		return cause
	}
	return err
}

// Panicked returns a panic as an error, with its stack for the log.
func Panicked(where string, p any) error {
	return fmt.Errorf("%s: panic: %v\n%s", where, p, debug.Stack())
}

package convert

import (
	"context"
	"errors"
	"reflect"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/pawltype"
)

const (
	// The broker cuts these too; here the limits keep the frames small.
	maxErrorText = 8 << 10
	maxStack     = 8 << 10
)

// TaskError describes an error for the attempt log.
func TaskError(err error) *pawlv1.TaskError {
	if err == nil {
		return nil
	}
	out := &pawlv1.TaskError{Message: CutText(err.Error(), maxErrorText), Type: CutText(ErrorType(err), 256)}
	var p *pawltype.PanicError
	if errors.As(err, &p) {
		out.Type, out.Stack = "panic", CutText(string(p.Stack), maxStack)
	}
	return out
}

// ErrorType returns the type of the innermost error, which is more useful than *fmt.wrapError. A timeout is "timeout".
func ErrorType(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return reflect.TypeOf(err).String()
		}
		err = inner
	}
}

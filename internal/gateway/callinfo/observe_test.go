package callinfo

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/pawlq/pawl/internal/task"
)

// A call is counted under the code of its response.
func TestCodesOfCalls(t *testing.T) {
	for want, errs := range map[string][]error{
		codeOK: {nil}, "not_found": {task.NotFound("task", "x")}, "internal": {errors.New("x")},
		"unavailable": {context.Canceled, context.DeadlineExceeded, fmt.Errorf("x: %w", context.DeadlineExceeded),
			task.Unavailable(0, "x")},
	} {
		for _, err := range errs {
			if got := codeOf(err); got != want {
				t.Errorf("%v was counted as %s, want %s", err, got, want)
			}
		}
	}
}

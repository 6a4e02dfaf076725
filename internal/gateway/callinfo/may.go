package callinfo

import (
	"context"
	"fmt"
	"strings"

	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// Denied returns a refusal for lack of rights.
func Denied(format string, args ...any) error {
	return &task.Error{Code: task.CodePermissionDenied, Message: fmt.Sprintf(format, args...)}
}

// MayUse refuses a queue that the caller's token does not cover, whether the queue exists or not.
func MayUse(ctx context.Context, queue string) error {
	scope := task.ScopeOf(ctx)
	if scope.Sees(queue) {
		return nil
	}
	c := Of(ctx)
	err := Denied("token %q is limited to the queues %s, and %q is not one of them", c.Principal.Name, strings.Join(scope.Queues, ", "),
		task.Cut(queue, 64))
	c.deny(err)
	return err
}

// MayEnqueue refuses a task if it, or a follow-up task, is in a queue that the caller's token does not cover.
func MayEnqueue(ctx context.Context, s *task.Spec) error {
	if task.ScopeOf(ctx).All() {
		return nil
	}
	if err := MayUse(ctx, s.Queue); err != nil {
		return err
	}
	return mayFollow(ctx, s)
}

func mayFollow(ctx context.Context, s *task.Spec) error {
	for i := range s.Then {
		if err := MayEnqueue(ctx, &s.Then[i]); err != nil {
			return contract.FieldOf(contract.Item("then", i), err)
		}
	}
	return nil
}

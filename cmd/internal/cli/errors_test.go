package cli

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/pawlq/pawl/pawltype"
)

// TestConnectionProblems: a server that doesn't answer is described in a few words.
func TestConnectionProblems(t *testing.T) {
	a := &App{Server: "n1:7295"}
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("stats: %w", errNobody), "no server at n1:7295"},
		{&pawltype.Error{Code: "unavailable", Message: "shard 1 has no leader"}, "unavailable: shard 1 has no leader"},
		{context.DeadlineExceeded, "the server at n1:7295 takes too long"},
		{&pawltype.Error{Code: "unauthenticated", Message: "a token is required"}, "the server at n1:7295 requires a token"},
		{&pawltype.Error{Code: "permission_denied", Message: "not yours"}, "permission_denied: not yours"},
	} {
		if got := a.Describe(c.err); got != c.want {
			t.Errorf("Describe(%v) = %q, want %q", c.err, got, c.want)
		}
	}
}

// TestPlain: the attempted action is named once, and the error code only if the message doesn't imply it.
func TestPlain(t *testing.T) {
	refusal := func(code pawltype.ErrorCode, message string) error {
		return &pawltype.Error{Code: code, Message: message}
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("queue %q: %w", "nope", refusal("not_found", `queue "nope": not found`)), `queue "nope": not found`},
		{fmt.Errorf("pause queue %q: %w", "nope", refusal("not_found", `queue "nope": not found`)), `pause queue "nope": not found`},
		{fmt.Errorf("cancel group %q: %w", "g", refusal("wrong_state", "cancel group g: it is complete")),
			`cancel group "g": it is complete`},
		{fmt.Errorf("task %q: %w", "x", refusal("invalid_argument", `task_id: "x" is not a UUID`)), `task "x": task_id: "x" is not a UUID`},
		{fmt.Errorf("enqueue: %w", refusal("queue_full", `queue "mail" is full`)), `enqueue: queue_full: queue "mail" is full`},
		{fmt.Errorf("queue %q: %w", "nopes", refusal("not_found", `queue "nope": not found`)), `queue "nopes": queue "nope": not found`},
		{refusal("not_found", `queue "nope": not found`), `queue "nope": not found`},
		{refusal("conflict", ""), "conflict"},
		{errors.New("pawl: something"), "something"},
		{errors.Join(nil, errors.Join(fmt.Errorf("retry %q: %w", "a", refusal("wrong_state", `retry "a": the task is ready`)),
			fmt.Errorf("retry %q: %w", "b", refusal("not_found", `task "b": not found`)))),
			`retry "a": the task is ready; retry "b": task "b": not found`},
		{fmt.Errorf("retry %q: %w, %w", "a", refusal("conflict", "changed"), errors.New("late")), `retry "a": conflict: changed, late`},
	} {
		if got := Plain(c.err); got != c.want {
			t.Errorf("Plain(%v) = %q, want %q", c.err, got, c.want)
		}
	}
}

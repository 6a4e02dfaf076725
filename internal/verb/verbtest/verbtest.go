// Package verbtest runs verbs in tests: a fake has a function for each that it answers. It knows none of them itself.
package verbtest

import (
	"context"
	"fmt"

	"github.com/pawlq/pawl/internal/verb"
)

// Answers maps the names of verbs to the functions that answer them. A call of any other verb panics, since the test did not expect it.
type Answers map[string]func(ctx context.Context, c verb.Call) error

// On has fn answer a verb, in place of what answered it before.
func On[Req, Resp any](a Answers, v *verb.Verb[Req, Resp], fn func(ctx context.Context, q Req) (Resp, error)) {
	a[v.Name()] = func(ctx context.Context, c verb.Call) error {
		out, err := fn(ctx, *c.Request().(*Req))
		*c.Answer().(*Resp) = out
		return err
	}
}

// Before has fn run before what answers a verb. If it returns an error, that is the answer.
func (a Answers) Before(rule *verb.Rule, fn func(ctx context.Context, c verb.Call) error) {
	answer := a[rule.Name]
	a[rule.Name] = func(ctx context.Context, c verb.Call) error {
		if err := fn(ctx, c); err != nil {
			return err
		}
		return answer(ctx, c)
	}
}

// Do implements verb.Runner.
func (a Answers) Do(ctx context.Context, c verb.Call) error {
	answer := a[c.Rule().Name]
	if answer == nil {
		panic(fmt.Sprintf("the test answers no verb %q", c.Rule().Name))
	}
	return answer(ctx, c)
}

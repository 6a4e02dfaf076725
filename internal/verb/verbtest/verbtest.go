// Package verbtest runs verbs in tests: a fake has a function for each that it answers. It knows none of them itself.
package verbtest

import (
	"context"
	"fmt"

	"github.com/pawlq/pawl/internal/verb"
)

// Answers maps the names of verbs to the functions that answer them. A call of any other verb panics, since the test did not expect it.
type Answers map[string]func(ctx context.Context, c verb.Call) error

// On has fn answer a verb.
func On[Req, Resp any](a Answers, v *verb.Verb[Req, Resp], fn func(ctx context.Context, q *Req) (Resp, error)) {
	a[v.Name()] = func(ctx context.Context, c verb.Call) error {
		out, err := fn(ctx, c.Request().(*Req))
		*c.Answer().(*Resp) = out
		return err
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

// OnSystem is On for a function that takes the request itself.
func OnSystem[Req, Resp any](a Answers, v *verb.Verb[Req, Resp], fn func(ctx context.Context, q Req) (Resp, error)) {
	On(a, v, func(ctx context.Context, q *Req) (Resp, error) { return fn(ctx, *q) })
}

// Part implements verb.Here.
func (a Answers) Part(*verb.Rule) any { return nil }

// Or returns a runner for the verbs that have an answer, and another for the rest.
func (a Answers) Or(rest verb.Runner) verb.Runner { return either{a, rest} }

type either struct {
	Answers
	rest verb.Runner
}

func (e either) Do(ctx context.Context, c verb.Call) error {
	if e.Answers[c.Rule().Name] != nil {
		return e.Answers.Do(ctx, c)
	}
	return e.rest.Do(ctx, c)
}

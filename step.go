package pawl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/pawltype"
)

// maxStepName is the maximum length of a step's name, in bytes.
const maxStepName = 256

// Step runs fn once in the life of a task. Its result is recorded under the name, as JSON, before Step returns. When the handler
// reaches the step again, in this attempt, a later one or after a replay, Step returns the recorded result without running fn. So a
// handler that does several things resumes at the first that is not done.
//
//	id, err := pawl.Step(ctx, t, "charge", func(ctx context.Context) (string, error) { return pay(ctx, t.Args) })
//
// If fn returns an error, Step returns it and records nothing. If the result can't be recorded, because it can't be encoded as JSON or
// is too large, Step returns a DeadLetter error: fn has run, and a retry would run it again. If a recorded result doesn't fit R,
// because another version of the program recorded it, the error names the step; a field that R lacks doesn't fit.
//
// Results are kept in the task's checkpoint: 64 KiB for all steps and the handler's own checkpoint together, and with a
// Keyring about 48 KiB. They are removed when the task succeeds. A name is at most 256 bytes. Goroutines may run steps
// concurrently; steps of the same name wait for each other.
//
// A crash between the effect of fn and its record makes fn run again: docs/idempotency.md says what helps.
func Step[R any](ctx context.Context, t Claimed, name string, fn func(ctx context.Context) (R, error)) (R, error) {
	c := t.claim()
	var out R
	data, err := c.step(ctx, name, func(ctx context.Context) ([]byte, error) { return resultOf(ctx, fn) })
	if err == nil {
		err = fit(data, &out)
	}
	if err != nil {
		var none R
		return none, fmt.Errorf("step %q of task %q: %w", name, c.ID, err)
	}
	return out, nil
}

func (c *Claim) step(ctx context.Context, name string, fn func(ctx context.Context) ([]byte, error)) ([]byte, error) {
	if name == "" || len(name) > maxStepName || !utf8.ValidString(name) {
		return nil, convert.Invalid("name", "%q is not 1 to %d bytes of UTF-8", convert.CutText(name, 64), maxStepName)
	}
	leave, err := c.saved.enter(ctx, "step/"+name)
	if err != nil {
		return nil, err
	}
	defer leave()
	if result, ok := c.saved.step(name); ok {
		return result, nil
	}
	if err := c.saved.current().room(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	data, err := fn(ctx)
	if err != nil {
		return nil, err
	}
	record, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
	defer cancel()
	err = c.save(record, func(k *checkpointData) {
		if k.steps == nil {
			k.steps = map[string]json.RawMessage{}
		}
		k.steps[name] = data
	})
	if err != nil {
		return nil, unfinished(err)
	}
	return data, nil
}

// unfinished returns the error of a run of fn whose completion was not recorded.
func unfinished(err error) error {
	if errors.Is(err, pawltype.ErrInvalidArgument) || errors.Is(err, pawltype.ErrPayloadTooLarge) { // encrypted, a result is larger
		return unrecorded(err)
	}
	return fmt.Errorf("fn has run, but its completion could not be recorded: %w", err)
}

// unrecorded makes the task a dead letter, because no attempt can record the result.
func unrecorded(err error) error {
	return DeadLetter(fmt.Errorf("fn has run, but its result can't be recorded: %w", err))
}

// resultOf runs fn and encodes its result.
func resultOf[R any](ctx context.Context, fn func(ctx context.Context) (R, error)) ([]byte, error) {
	v, err := fn(ctx)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(v)
	if err != nil {
		return nil, unrecorded(err)
	}
	return data, nil
}

// fit decodes a recorded result. An empty one is the zero value: the effect was recorded without a result.
func fit[R any](data []byte, to *R) error {
	if len(data) == 0 {
		return nil
	}
	if err := strictly(data, to); err != nil {
		return fmt.Errorf("the recorded result doesn't fit %T: %w", *to, err)
	}
	return nil
}

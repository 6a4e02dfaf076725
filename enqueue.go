package pawl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Args is the payload of a task as a Go value, sent as JSON. TaskType names the handler that it is for and must not
// depend on the value.
type Args interface {
	TaskType() string
}

// ArgsWithOptions are Args with options of their own, for every task of the type. Those of the call come after them.
type ArgsWithOptions interface {
	Args
	TaskOptions() []Option
}

// RawTask is a task whose type is known only at run time, or whose payload isn't JSON. It is an Args.
type RawTask struct {
	Type        string
	Payload     []byte // sent as it is
	ContentType string // "" and "application/json": Payload must be a JSON value
}

// TaskType gives the type.
func (r RawTask) TaskType() string { return r.Type }

// Ref is an accepted task.
type Ref struct {
	ID        string
	State     State     // when it was accepted: StateReady or StateScheduled; of a duplicate: where it was
	CreatedAt time.Time // by the broker's clock
	Duplicate bool      // the idempotency key or request id had this task already; without a key it was a repeat by the client itself

	client *Client
}

// Wait waits until the task has ended, however long that takes, or ctx ends. If the task ended otherwise than by success the error is
// an *EndedError, beside the task.
func (r *Ref) Wait(ctx context.Context) (*TaskInfo, error) { return r.client.Wait(ctx, r.ID) }

// ResultOf waits for the task like Ref.Wait and decodes its result from JSON. A handler that set no result gives the zero R.
func ResultOf[R any](ctx context.Context, ref *Ref) (R, error) {
	var out R
	info, err := ref.Wait(ctx)
	if err != nil {
		return out, err
	}
	return out, info.DecodeResult(&out)
}

// Enqueue gives a task to the broker. When it returns without an error, the task is on stable storage.
//
// Calls that run at the same time are gathered into batches; a lone call goes out at once. If the error is ErrUnavailable or
// that of ctx, the task may or may not have been accepted: repeat with the same RequestID or IdempotencyKey.
func (c *Client) Enqueue(ctx context.Context, args Args, opts ...Option) (*Ref, error) {
	spec, err := c.newSpec(args, opts)
	if err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	ctx, sent := c.observe.send(ctx, spec)
	ref, err := c.gather.enqueue(ctx, spec)
	sent.sent(ref, err)
	if err != nil {
		return nil, fmt.Errorf("enqueue %q: %w", spec.GetType(), err)
	}
	return ref, nil
}

// Item is one task of a batch.
type Item struct {
	Args    Args
	Options []Option
}

// Enqueued is what became of an Item: it was accepted as Ref, or refused with Err.
type Enqueued struct {
	Ref *Ref
	Err error
}

// EnqueueBatch gives many tasks to the broker and answers for each, in order: one bad task doesn't sink the others.
// It sends as many requests as the limits of one (1,000 tasks, 4 MiB) ask for. The error is not nil if some items got no answer:
// their Err says the same.
func (c *Client) EnqueueBatch(ctx context.Context, items []Item) ([]Enqueued, error) {
	out := make([]Enqueued, len(items))
	calls := make([]*enqueueCall, 0, min(len(items), maxBatchTasks))
	at := make([]int, 0, cap(calls)) // calls[i] is items[at[i]]
	size := 0
	var unanswered error
	flush := func() {
		ctx, sent := c.observe.sendMany(ctx, len(calls), func(i int) *pawlv1.TaskSpec { return calls[i].spec })
		c.gather.send(ctx, calls)
		var lost error // of these
		for i, e := range calls {
			out[at[i]] = Enqueued{Ref: e.ref, Err: e.err}
			sent.answered(i, e.ref, e.err)
			if e.err != nil && (errors.Is(e.err, ErrUnavailable) || errors.Is(e.err, ErrClosed) || ctx.Err() != nil) {
				lost, unanswered = e.err, e.err
			}
		}
		sent.done(len(calls), lost)
		calls, at, size = calls[:0], at[:0], 0
	}
	for i, item := range items {
		spec, err := c.newSpec(item.Args, item.Options)
		if err != nil {
			out[i].Err = fmt.Errorf("enqueue: item %d: %w", i, err)
			continue
		}
		n := proto.Size(spec)
		if len(calls) == maxBatchTasks || len(calls) > 0 && size+n > maxBatchBytes {
			flush()
		}
		calls, at, size = append(calls, &enqueueCall{spec: spec, size: n}), append(at, i), size+n
	}
	if len(calls) > 0 {
		flush()
	}
	if unanswered != nil {
		unanswered = fmt.Errorf("enqueue batch of %d: %w", len(items), unanswered)
	}
	return out, unanswered
}

// newSpec makes the request for one task, with a request id.
func (c *Client) newSpec(args Args, opts []Option) (*pawlv1.TaskSpec, error) {
	spec, err := describe(args, opts)
	if err != nil {
		return nil, err
	}
	if _, encrypts := c.conn.(*sealing); encrypts { // here, or it would sink those of the same request
		if err := checkSealable(spec); err != nil {
			return nil, err
		}
	}
	if spec.RequestId == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("request id: %w", err)
		}
		spec.RequestId = id.String()
	}
	return spec, nil
}

// describe puts arguments and options into the form in which a task is sent.
func describe(args Args, opts []Option) (*pawlv1.TaskSpec, error) {
	if args == nil {
		return nil, invalid("args", "is nil")
	}
	spec := &pawlv1.TaskSpec{Type: args.TaskType()}
	if raw, ok := args.(RawTask); ok {
		spec.Payload, spec.ContentType = raw.Payload, raw.ContentType
	} else {
		payload, err := json.Marshal(args)
		if err != nil {
			return nil, fmt.Errorf("payload of type %q: %w", spec.Type, err)
		}
		spec.Payload = payload
	}
	if d, ok := args.(ArgsWithOptions); ok {
		opts = slices.Concat(d.TaskOptions(), opts)
	}
	for _, opt := range opts {
		if err := opt.apply(spec); err != nil {
			return nil, err
		}
	}
	return spec, checkSpec(spec)
}

// checkSpec refuses what would make the whole batch unreadable, beyond one message, or lose an option on its way; all other
// rules are the broker's.
func checkSpec(s *pawlv1.TaskSpec) error {
	if s.GetType() == "" {
		return invalid("type", "is empty")
	}
	if len(s.GetPayload()) > maxMessage-maxSpecOverhead {
		return &Error{Code: codePayloadTooLarge, Field: "payload", Message: fmt.Sprintf("payload of type %q: %d bytes are beyond a message of %d", s.GetType(), len(s.GetPayload()), maxMessage)}
	}
	for _, f := range [...]struct{ name, value string }{
		{"type", s.Type}, {"content_type", s.ContentType}, {"queue", s.Queue}, {"idempotency_key", s.IdempotencyKey},
		{"request_id", s.RequestId}, {"key", s.Key}, {"unique.key", s.GetUnique().GetKey()}, {"group_id", s.GroupId},
	} {
		if err := checkText(f.name, f.value); err != nil {
			return err
		}
	}
	for _, tag := range s.Tags {
		if err := checkText("tags", tag); err != nil {
			return err
		}
	}
	for name, value := range s.Headers {
		if err := errors.Join(checkText("headers", name), checkText("headers", value)); err != nil {
			return err
		}
	}
	return nil
}

// maxSpecOverhead is room in a message for what stands beside a payload.
const maxSpecOverhead = 1 << 20

func checkText(field, s string) error {
	switch {
	case len(s) > maxSpecOverhead/16:
		return invalid(field, "%d bytes are too many", len(s))
	case !utf8.ValidString(s):
		return invalid(field, "%q is not valid UTF-8", s)
	}
	return nil
}

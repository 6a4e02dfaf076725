package pawl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/encrypt"
	"github.com/pawlq/pawl/internal/client/gather"
	"github.com/pawlq/pawl/internal/client/spec"
	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Args is the payload of a task as a Go value, sent as JSON. TaskType names the handler that the task is for, and must not depend on
// the value.
type Args interface {
	TaskType() string
}

// ArgsWithOptions are Args with default options for every task of the type. The options of a call are applied after them.
type ArgsWithOptions interface {
	Args
	TaskOptions() []Option
}

// RawTask is a task whose type is known only at run time, or whose payload isn't JSON. It implements Args.
type RawTask struct {
	Type        string
	Payload     []byte // sent unchanged
	ContentType string // "" and "application/json": Payload must be a JSON value
}

// TaskType returns the type.
func (r RawTask) TaskType() string { return r.Type }

// RawPayload returns the payload and its content type.
func (r RawTask) RawPayload() (payload []byte, contentType string) { return r.Payload, r.ContentType }

// Ref returns a reference to the task with this id.
func (c *Client) Ref(id string) *Ref { return &Ref{ID: id, client: c} }

// Ref refers to an accepted task.
type Ref struct {
	ID        string
	State     pawltype.State // when it was accepted: StateReady or StateScheduled; for a duplicate: its state at that time
	CreatedAt time.Time      // by the broker's clock
	Duplicate bool           // the idempotency key or request id already had this task; without a key, the client's own retry

	client *Client
}

// Wait waits until the task has ended, as Client.Wait does. If it ended other than by succeeding, Wait returns the task and an *EndedError.
func (r *Ref) Wait(ctx context.Context) (*pawltype.Task, error) { return r.client.Wait(ctx, r.ID) }

// Result waits for the task as Wait does and decodes its result from JSON into v, which is left unchanged if the handler has set none.
func (r *Ref) Result(ctx context.Context, v any) error {
	task, err := r.Wait(ctx)
	if err != nil {
		return err
	}
	return task.DecodeResult(v)
}

// Enqueue enqueues a task. When it returns without an error, the task is on stable storage.
//
// Calls that run at the same time are gathered into batches; a lone call is sent immediately. If the error is ErrUnavailable or that
// of ctx, the task may or may not have been accepted: retry with the same RequestID or IdempotencyKey.
func (c *Client) Enqueue(ctx context.Context, args Args, opts ...Option) (*Ref, error) {
	spec, err := c.newSpec(args, opts)
	if err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	ctx, sent := c.core.Telemetry.Send(ctx, spec)
	answer, err := c.gather.Enqueue(ctx, spec)
	sent.Sent(answer, err)
	if err != nil {
		return nil, fmt.Errorf("enqueue %q: %w", spec.GetType(), err)
	}
	return c.refOf(answer), nil
}

// Item is one task of a batch.
type Item struct {
	Args    Args
	Options []Option
}

// Enqueued is the outcome of an Item: it was accepted as Ref, or refused with Err.
type Enqueued struct {
	Ref *Ref
	Err error
}

// EnqueueBatch enqueues many tasks and returns the outcome of each, in order: one bad task doesn't fail the others. It sends as many
// requests as the limits of a request (1,000 tasks, 4 MiB) demand. If some items got no response, the error is not nil, and is also
// their Err.
func (c *Client) EnqueueBatch(ctx context.Context, items []Item) ([]Enqueued, error) {
	out := make([]Enqueued, len(items))
	calls := make([]*gather.Call, 0, min(len(items), gather.MaxTasks))
	specs := make([]*pawlv1.TaskSpec, 0, cap(calls)) // of calls
	at := make([]int, 0, cap(calls))                 // calls[i] is items[at[i]]
	size := 0
	var unanswered error
	flush := func() {
		ctx, sent := c.core.Telemetry.SendMany(ctx, len(calls), func(i int) *pawlv1.TaskSpec { return specs[i] })
		c.gather.Send(ctx, calls)
		var lost error // of these
		for i, call := range calls {
			answer, err := call.Outcome()
			sent.Answered(i, answer, err)
			if err != nil {
				out[at[i]].Err = err
			} else {
				out[at[i]].Ref = c.refOf(answer)
			}
			if err != nil && (errors.Is(err, pawltype.ErrUnavailable) || errors.Is(err, pawltype.ErrClosed) || ctx.Err() != nil) {
				lost, unanswered = err, err
			}
		}
		sent.Done(len(calls), lost)
		calls, specs, at, size = calls[:0], specs[:0], at[:0], 0
	}
	for i, item := range items {
		spec, err := c.newSpec(item.Args, item.Options)
		if err != nil {
			out[i].Err = fmt.Errorf("enqueue: item %d: %w", i, err)
			continue
		}
		n := proto.Size(spec)
		if len(calls) == gather.MaxTasks || len(calls) > 0 && size+n > gather.MaxBytes {
			flush()
		}
		calls, specs, at, size = append(calls, gather.NewCall(spec)), append(specs, spec), append(at, i), size+n
	}
	if len(calls) > 0 {
		flush()
	}
	if unanswered != nil {
		unanswered = fmt.Errorf("enqueue batch of %d: %w", len(items), unanswered)
	}
	return out, unanswered
}

// newSpec returns the request for one task, with a request id.
func (c *Client) newSpec(args Args, opts []Option) (*pawlv1.TaskSpec, error) {
	spec, err := spec.Of(args, opts)
	if err != nil {
		return nil, err
	}
	if encrypt.Encrypts(c.core.Conn) { // here, or it would fail the others of the same request
		if err := encrypt.Check(spec); err != nil {
			return nil, err
		}
	}
	if spec.RequestId == nil {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("request id: %w", err)
		}
		spec.RequestId = new(id.String())
	}
	return spec, nil
}

func (c *Client) refOf(p *pawlv1.Enqueued) *Ref {
	return &Ref{
		ID:        p.GetTaskId(),
		State:     convert.State(p.GetState()),
		CreatedAt: convert.Time(p.GetCreatedAt()),
		Duplicate: p.GetDuplicate(),
		client:    c,
	}
}

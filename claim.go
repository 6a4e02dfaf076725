package pawl

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/lease"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// maxCheckpoint is the broker's limit, in bytes of JSON.
const maxCheckpoint = 64 << 10

// Claim is a task in the hands of a worker, under a lease. A handler's Task has one within. Its fields are for reading.
type Claim struct {
	ID             string
	Type           string
	Queue          string
	Payload        []byte
	ContentType    string
	Priority       pawltype.Priority
	Attempt        int           // 1 for the first; failures and lost leases count, releases and snoozes don't
	MaxAttempts    int           // a failure of this attempt is the last
	Token          string        // what every answer to the broker needs
	Fence          int64         // grows with each claim of the task: guard your own writes with it
	Lease          time.Duration // length; workers extend it by themselves
	LeaseExpiresAt time.Time     // as the claim was made, by the broker's clock
	Timeout        time.Duration // of this run; 0: none
	Headers        map[string]string
	Key            string
	Tags           []string
	IdempotencyKey string
	CreatedAt      time.Time
	ReadyAt        time.Time
	Parent         *pawltype.Parent // what it follows, with the result; nil: nothing
	GroupID        string           // of the group that it is a member of; "": none

	locked     error // why what it holds could not be decrypted; nil: it could, or was not encrypted
	saved      saved // by earlier attempts, or by this one
	result     []byte
	resultType string
	holder     lease.Holder // nil for a claim made by hand, as in tests of handlers
}

// Claimed is a *Claim or a *Task.
type Claimed interface{ claim() *Claim }

func (c *Claim) claim() *Claim { return c }

func (c *Claim) ref() lease.Claim { return lease.Claim{TaskID: c.ID, Type: c.Type, Token: c.Token} }

// NewClaim is for package claims, which claims tasks by calls. Handlers get unreadable, if it is not nil, in place of a payload that could
// not be decrypted.
func NewClaim(task *pawlv1.ClaimedTask, holder lease.Holder, unreadable error) *Claim {
	c := new(Claim)
	c.set(task, holder)
	c.locked = unreadable
	return c
}

// Task is a task in the hands of its handler. Everything of Claim can be read on it: t.ID, t.Attempt, t.Fence.
type Task[T any] struct {
	*Claim
	Args T
}

// SetResult gives the task a result, encoded as JSON at once; at most 1 MiB. It is kept if the handler returns nil, and then the last
// call counts.
func (c *Claim) SetResult(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("pawl: result of task %q: %w", c.ID, err)
	}
	c.SetRawResult("application/json", data)
	return nil
}

// SetRawResult gives the task a result of any content type. The bytes must not change afterwards.
func (c *Claim) SetRawResult(contentType string, data []byte) {
	c.result, c.resultType = data, contentType
}

// Result is what SetResult or SetRawResult gave, nil if nothing, for middleware and tests.
func (c *Claim) Result() []byte { return c.result }

// ResultContentType is that of Result; "": JSON.
func (c *Claim) ResultContentType() string { return c.resultType }

// Progress tells how far the handler is: percent from 0 to 100 and at most 1 KiB of text. It doesn't wait for the broker: a worker
// sends the newest at most once a second, and the last one may be passed over by the end of the task. The error is the cause of
// ctx, if that has ended: time to stop.
func (c *Claim) Progress(ctx context.Context, percent float64, message string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if c.holder == nil {
		return nil
	}
	return c.holder.Progress(ctx, c.ref(), &pawlv1.Progress{Percent: max(0, min(percent, 100)), Message: convert.CutText(message, convert.MaxProgressText)})
}

// Checkpoint stores v, as at most 64 KiB of JSON, for the next attempt, which finds it with LastCheckpoint. When it returns nil the
// checkpoint is on stable storage, and the lease has been extended. What steps came to is kept beside it: see Step.
func (c *Claim) Checkpoint(ctx context.Context, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("pawl: checkpoint of task %q: %w", c.ID, err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := c.save(ctx, func(k *kept) { k.own = data }); err != nil {
		return fmt.Errorf("checkpoint of task %q: %w", c.ID, err)
	}
	return nil
}

// LastCheckpoint decodes the newest checkpoint, of this or an earlier attempt, into v and reports whether there is one.
func (c *Claim) LastCheckpoint(v any) (bool, error) {
	own := c.saved.checkpoint()
	if c.locked != nil {
		return false, c.locked
	}
	if len(own) == 0 {
		return false, nil
	}
	if err := json.Unmarshal(own, v); err != nil {
		return false, fmt.Errorf("pawl: checkpoint of task %q: %w", c.ID, err)
	}
	return true, nil
}

// Decode decodes the payload from JSON into v. The error, returned by a handler, poisons the task.
func (c *Claim) Decode(v any) error {
	if c.locked != nil {
		return c.locked
	}
	if len(c.Payload) == 0 {
		return nil
	}
	if c.ContentType != "" && c.ContentType != "application/json" {
		return Poison(fmt.Errorf("payload of type %q is %q, not JSON", c.Type, c.ContentType))
	}
	if err := json.Unmarshal(c.Payload, v); err != nil {
		return Poison(fmt.Errorf("payload of type %q: %w", c.Type, err))
	}
	return nil
}

func (c *Claim) set(p *pawlv1.ClaimedTask, h lease.Holder) {
	*c = Claim{
		ID: p.GetTaskId(), Type: p.GetType(), Queue: p.GetQueue(), Payload: p.GetPayload(), ContentType: p.GetContentType(),
		Priority: convert.Priority(p.GetPriority()), Attempt: int(p.GetAttempt()), MaxAttempts: int(p.GetMaxAttempts()),
		Token: p.GetClaimToken(), Fence: p.GetFence(), Lease: p.GetLease().AsDuration(),
		LeaseExpiresAt: convert.Time(p.GetLeaseExpiresAt()), Timeout: p.GetTimeout().AsDuration(),
		Headers: p.GetHeaders(), Key: p.GetKey(), Tags: p.GetTags(), IdempotencyKey: p.GetIdempotencyKey(),
		CreatedAt: convert.Time(p.GetCreatedAt()), ReadyAt: convert.Time(p.GetReadyAt()),
		Parent: convert.Parent(p.GetParent()), GroupID: p.GetGroupId(),
		saved: saved{kept: keptOf(p.GetCheckpoint())}, holder: h,
	}
}

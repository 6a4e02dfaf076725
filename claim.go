package pawl

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/lease"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// maxCheckpoint is the broker's limit, in bytes of JSON.
const maxCheckpoint = 64 << 10

// Claim is a task that a worker holds under a lease. A handler's Task embeds one. Its fields are read-only.
type Claim struct {
	ID             string
	Type           string
	Queue          string
	Payload        []byte
	ContentType    string
	Priority       pawltype.Priority
	Attempt        int           // starts at 1; failures and lost leases count, releases and snoozes don't
	MaxAttempts    int           // number of the last attempt: if it fails, the task is dead
	Token          string        // needed to settle or extend the claim
	Fence          int64         // grows with each claim of the task: guard your own writes with it
	Lease          time.Duration // its length; workers extend it automatically
	LeaseExpiresAt time.Time     // as of the claim, by the broker's clock
	Timeout        time.Duration // of this run; 0: none
	Headers        map[string]string
	Key            string
	Tags           []string
	IdempotencyKey string
	CreatedAt      time.Time
	ReadyAt        time.Time
	Parent         *pawltype.Parent // the task or group that it follows, with the result; nil: none
	GroupID        string           // of the group that it belongs to; "": none

	unreadable error           // why its contents could not be decrypted, which a handler gets instead; nil: they could be
	saved      checkpointState // by earlier attempts, or by this one
	result     []byte
	resultType string
	holder     lease.Holder // nil for a claim made by hand, as in tests of handlers
}

// Claimed is a *Claim or a *Task.
type Claimed interface{ claim() *Claim }

func (c *Claim) claim() *Claim { return c }

func (c *Claim) ref() lease.Claim { return lease.Claim{TaskID: c.ID, Type: c.Type, Token: c.Token} }

// Task is a task as its handler sees it. It embeds the Claim: t.ID, t.Attempt, t.Fence.
type Task[T any] struct {
	*Claim
	Args T
}

// SetResult sets the task's result, which is encoded as JSON right away; at most 1 MiB. It is stored if the handler returns nil. The last
// call wins.
func (c *Claim) SetResult(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("pawl: result of task %q: %w", c.ID, err)
	}
	c.SetRawResult("application/json", data)
	return nil
}

// SetRawResult sets the task's result, with any content type. The bytes must not change afterwards.
func (c *Claim) SetRawResult(contentType string, data []byte) {
	c.result, c.resultType = data, contentType
}

// Result returns the result set by SetResult or SetRawResult, or nil; for middleware and tests.
func (c *Claim) Result() []byte { return c.result }

// ResultContentType returns the content type of Result; "" means JSON.
func (c *Claim) ResultContentType() string { return c.resultType }

// Progress reports the handler's progress: percent from 0 to 100 and at most 1 KiB of text. It doesn't wait for the broker: a worker sends
// the newest report at most once a second, and may skip the last one when the task ends. The error is the cause of ctx if that has ended:
// time to stop.
func (c *Claim) Progress(ctx context.Context, percent float64, message string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if c.holder == nil {
		return nil
	}
	if math.IsNaN(percent) { // 0 of 0: the broker would refuse it, and the extension of the lease with it
		percent = 0
	}
	return c.holder.Progress(ctx, c.ref(), &pawlv1.Progress{Percent: max(0, min(percent, 100)), Message: convert.CutText(message,
		convert.MaxProgressText)})
}

// Checkpoint stores v, as at most 64 KiB of JSON, for the next attempt, which reads it with LastCheckpoint. When Checkpoint returns nil,
// the checkpoint is on stable storage, and the lease has been extended. The results of steps are kept next to it: see Step.
func (c *Claim) Checkpoint(ctx context.Context, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("pawl: checkpoint of task %q: %w", c.ID, err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := c.save(ctx, func(k *checkpointData) { k.own = data }); err != nil {
		return fmt.Errorf("checkpoint of task %q: %w", c.ID, err)
	}
	return nil
}

// LastCheckpoint decodes the newest checkpoint, of this or an earlier attempt, into v and reports whether there is one.
func (c *Claim) LastCheckpoint(v any) (bool, error) {
	own := c.saved.checkpoint()
	if c.unreadable != nil {
		return false, c.unreadable
	}
	if len(own) == 0 {
		return false, nil
	}
	if err := json.Unmarshal(own, v); err != nil {
		return false, fmt.Errorf("pawl: checkpoint of task %q: %w", c.ID, err)
	}
	return true, nil
}

// Decode decodes the payload from JSON into v. A handler that returns its error poisons the task.
func (c *Claim) Decode(v any) error {
	if c.unreadable != nil {
		return c.unreadable
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

func newClaim(p *pawlv1.ClaimedTask, h lease.Holder, unreadable error) *Claim {
	c := new(Claim)
	c.set(p, h, unreadable)
	return c
}

func (c *Claim) set(p *pawlv1.ClaimedTask, h lease.Holder, unreadable error) {
	*c = Claim{
		ID: p.GetTaskId(), Type: p.GetType(), Queue: p.GetQueue(), Payload: p.GetPayload(), ContentType: p.GetContentType(),
		Priority: convert.Priority(p.GetPriority()), Attempt: int(p.GetAttempt()), MaxAttempts: int(p.GetMaxAttempts()),
		Token: p.GetClaimToken(), Fence: p.GetFence(), Lease: p.GetLease().AsDuration(),
		LeaseExpiresAt: convert.Time(p.GetLeaseExpiresAt()), Timeout: p.GetTimeout().AsDuration(),
		Headers: p.GetHeaders(), Key: p.GetKey(), Tags: p.GetTags(), IdempotencyKey: p.GetIdempotencyKey(),
		CreatedAt: convert.Time(p.GetCreatedAt()), ReadyAt: convert.Time(p.GetReadyAt()),
		Parent: convert.Parent(p.GetParent()), GroupID: p.GetGroupId(),
		saved: checkpointState{data: parseCheckpoint(p.GetCheckpoint())}, holder: h, unreadable: unreadable,
	}
}

// Package claims has the calls that a worker is made of: claim, extend, ack, fail, release, and those of once keys. It is for programs
// that have their own loop instead of a pawl.Worker.
//
// It does not extend leases by itself: when a lease expires, another worker gets the task.
package claims

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/internal/client"
	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/lease"
	"github.com/pawlq/pawl/internal/client/outcome"
	"github.com/pawlq/pawl/internal/client/rpc"
	"github.com/pawlq/pawl/internal/client/telemetry"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Client makes the calls of a worker, for programs that have their own loop instead of a pawl.Worker. The caller must extend leases: when
// a lease expires, another worker gets the task.
type Client struct {
	core   *client.Client
	worker pawlv1.WorkerServiceClient
}

// New returns a Client that makes its calls through c.
func New(c *pawl.Client) Client {
	core := client.Of(c)
	return Client{core: core, worker: pawlv1.NewWorkerServiceClient(core)}
}

// Request describes what to claim.
type Request struct {
	Queues   pawl.Queues   // required
	Types    []string      // only these types; empty: all
	Max      int           // maximum number of tasks: default 1, at most 1,000
	MaxBytes int64         // of tasks: ends the claim early, but always allows one task; default 4 MiB
	Lease    time.Duration // 1 s to 12 h; default: the queue's
	Wait     time.Duration // for the first task, at most 60 s; 0: don't wait
	Worker   string        // the worker's name: "host/pid"
	Runs     bool          // in queues with a strict order of keys, allow several tasks of a key, which the caller runs in order; else one
	Key      string        // a repeat with the same key within the lease returns the same claims; "": a new one for each call
}

// Claim claims up to Max tasks. If there is none within Wait, it returns no claims, and no error.
func (s Client) Claim(ctx context.Context, r Request) ([]*pawl.Claim, error) {
	got, err := s.Poll(ctx, r)
	return got.Claims, err
}

// PollResult is the result of Poll.
type PollResult struct {
	Claims []*pawl.Claim
	// Quiet: an operator has made the worker quiet, see admin.Workers.Quiet. It gets no tasks, and should keep polling to
	// learn when it gets some again.
	Quiet       bool
	QuietReason string // as the operator gave it; "": none
}

// Poll is Claim, but also reports whether an operator has made the worker quiet.
func (s Client) Poll(ctx context.Context, r Request) (PollResult, error) {
	shares, order, err := convert.QueueShares(r.Queues)
	if err != nil {
		return PollResult{}, fmt.Errorf("claim: %w", err)
	}
	if r.Key == "" {
		key, err := uuid.NewRandom()
		if err != nil {
			return PollResult{}, fmt.Errorf("claim key: %w", err)
		}
		r.Key = key.String()
	}
	began := time.Now()
	resp, err := rpc.Call(ctx, s.core.Caller, true, s.worker.Claim, &pawlv1.ClaimRequest{
		Queues: shares, Order: order, Types: r.Types, Max: convert.Int32(r.Max), MaxBytes: r.MaxBytes,
		Lease: convert.Duration(r.Lease), Wait: convert.Duration(r.Wait), Worker: r.Worker, ClaimKey: convert.Text(r.Key), Runs: r.Runs,
	})
	s.core.Telemetry.Claimed(ctx, shares, began, resp.GetTasks(), err)
	if err != nil {
		return PollResult{}, fmt.Errorf("claim: %w", err)
	}
	out := PollResult{Claims: make([]*pawl.Claim, len(resp.GetTasks())), Quiet: resp.GetQuiet(), QuietReason: resp.GetQuietReason()}
	for i, p := range resp.GetTasks() {
		unreadable := outcome.OpenClaimed(s.core.Conn, p)
		out.Claims[i] = s.core.NewClaim(p, held{s.calls()}, unreadable).(*pawl.Claim)
	}
	return out, nil
}

// Settled is the outcome of settling a claim.
type Settled struct {
	State     pawltype.State
	NextRunAt time.Time // when the task is due again, if it is
	Err       error     // of an item of SettleAll; if set, nothing was done
}

// Ack completes the task, with the result set by Claim.SetResult. A repeat returns the first answer.
func (s Client) Ack(ctx context.Context, c *pawl.Claim) error {
	ctx, op := s.core.Telemetry.Settle(ctx, tracedClaim(c), telemetry.VerbAck)
	_, err := rpc.Call(ctx, s.core.Caller, true, s.worker.Ack, lease.AckRequest(refOf(c), c.Result(), c.ResultContentType()))
	op.End(err)
	if err != nil {
		return fmt.Errorf("ack %q: %w", c.ID, err)
	}
	return nil
}

// Fail reports that the run failed with err, which may steer as a handler's error does. For Snooze, use Release.
func (s Client) Fail(ctx context.Context, c *pawl.Claim, err error) (Settled, error) {
	if err == nil || pawl.OutcomeOf(err) == pawltype.OutcomeSnoozed {
		return Settled{}, fmt.Errorf("fail %q: %w", c.ID, convert.Invalid("error", "%v is not a failure", err))
	}
	ctx, op := s.core.Telemetry.Settle(ctx, tracedClaim(c), telemetry.VerbFail)
	resp, err := rpc.Call(ctx, s.core.Caller, true, s.worker.Fail, lease.FailRequest(refOf(c), err))
	op.End(err)
	if err != nil {
		return Settled{}, fmt.Errorf("fail %q: %w", c.ID, err)
	}
	return Settled{State: convert.State(resp.GetState()), NextRunAt: convert.Time(resp.GetNextRunAt())}, nil
}

// Release gives the task back, due after delay. No attempt is used.
func (s Client) Release(ctx context.Context, c *pawl.Claim, delay time.Duration) (Settled, error) {
	ctx, op := s.core.Telemetry.Settle(ctx, tracedClaim(c), telemetry.VerbRelease)
	resp, err := rpc.Call(ctx, s.core.Caller, true, s.worker.Release, lease.ReleaseRequest(refOf(c), delay))
	op.End(err)
	if err != nil {
		return Settled{}, fmt.Errorf("release %q: %w", c.ID, err)
	}
	return Settled{State: convert.State(resp.GetState()), NextRunAt: convert.Time(resp.GetNextRunAt())}, nil
}

// Extension describes an extension of a lease.
type Extension struct {
	Lease      time.Duration      // from now; 0: the claim's own
	Progress   *pawltype.Progress // nil: unchanged
	Checkpoint []byte             // at most 64 KiB; nil: unchanged
}

// Extend extends the lease, and stores progress and checkpoint. It returns when the lease expires, by the broker's clock.
func (s Client) Extend(ctx context.Context, c *pawl.Claim, e Extension) (time.Time, error) {
	var progress *pawlv1.Progress
	if e.Progress != nil {
		progress = &pawlv1.Progress{Percent: e.Progress.Percent, Message: convert.CutText(e.Progress.Message, convert.MaxProgressText)}
	}
	resp, err := s.calls().Extend(ctx, refOf(c), e.Lease, progress, e.Checkpoint)
	if err != nil {
		return time.Time{}, err
	}
	return convert.Time(resp.GetLeaseExpiresAt()), nil
}

// Settlement settles a claim as a worker would after its handler returned Err: nil acks, an error fails or steers.
type Settlement struct {
	Claim *pawl.Claim
	Err   error
}

// SettleAll settles many claims in as few calls as the limits of a call (1,000 claims, 4 MiB) allow, and returns the outcome of each, in
// order. Those whose shard is unavailable are sent again, like any call. If it returns an error, the outcomes end where it happened; it is
// safe to repeat the rest.
func (s Client) SettleAll(ctx context.Context, items []Settlement) ([]Settled, error) {
	out := make([]Settled, 0, len(items))
	for len(out) < len(items) {
		var chunk []lease.Ending
		size := 0
		for _, item := range items[len(out):min(len(items), len(out)+lease.MaxSettleItems)] {
			e := lease.EndingOf(refOf(item.Claim), item.Claim.Result(), item.Claim.ResultContentType(), item.Err)
			if size += e.Size(); len(chunk) > 0 && size > lease.MaxSettleBytes {
				break
			}
			chunk = append(chunk, e)
		}
		answers, err := s.calls().Settle(ctx, chunk)
		if err != nil {
			return out, fmt.Errorf("settle %d claims: %w", len(items), err)
		}
		for _, p := range answers {
			settled := Settled{State: convert.State(p.GetState()), NextRunAt: convert.Time(p.GetNextRunAt())}
			if p.GetError() != nil {
				settled.Err = convert.Error(p.GetError())
			}
			out = append(out, settled)
		}
	}
	return out, nil
}

// BeginOnce asks for a once key. It is the low-level part of pawl.Once, with FinishOnce and AbandonOnce.
func (s Client) BeginOnce(ctx context.Context, c *pawl.Claim, key string) (pawltype.OnceAnswer, error) {
	return s.calls().BeginOnce(ctx, refOf(c), key)
}

// FinishOnce records that the effect has happened, with its result: JSON, or nothing. It returns until when the record is kept: ttl from
// now, or a day if ttl is 0. A repeat returns the first answer.
func (s Client) FinishOnce(ctx context.Context, c *pawl.Claim, key string, result []byte, ttl time.Duration) (keptUntil time.Time,
	err error) {
	return s.calls().FinishOnce(ctx, refOf(c), key, result, ttl)
}

// AbandonOnce reports that the effect did not happen, so that others can try: the key is then free, or done if it was before. After
// ErrUnavailable the claim may or may not still hold the key; don't begin it again with this claim.
func (s Client) AbandonOnce(ctx context.Context, c *pawl.Claim, key string) (pawltype.OnceState, error) {
	return s.calls().AbandonOnce(ctx, refOf(c), key)
}

func (s Client) calls() lease.Calls { return lease.NewCalls(s.core.Caller, s.core.Telemetry) }

func refOf(c *pawl.Claim) lease.Claim { return lease.Claim{TaskID: c.ID, Type: c.Type, Token: c.Token} }

func tracedClaim(c *pawl.Claim) telemetry.Task {
	return telemetry.Task{ID: c.ID, Type: c.Type, Queue: c.Queue, Attempt: c.Attempt}
}

// held implements lease.Holder for claims made by Client.
type held struct{ lease.Calls }

// Progress implements lease.Holder.
func (h held) Progress(ctx context.Context, c lease.Claim, p *pawlv1.Progress) error {
	_, err := h.Extend(ctx, c, 0, p, nil)
	return err
}

// Checkpoint implements lease.Holder.
func (h held) Checkpoint(ctx context.Context, c lease.Claim, data []byte) error {
	_, err := h.Extend(ctx, c, 0, nil, data)
	return err
}

// FinishOnce implements lease.Holder.
func (h held) FinishOnce(ctx context.Context, c lease.Claim, key string, result []byte, ttl time.Duration) error {
	_, err := h.Calls.FinishOnce(ctx, c, key, result, ttl)
	return err
}

// AbandonOnce implements lease.Holder.
func (h held) AbandonOnce(ctx context.Context, c lease.Claim, key string) error {
	_, err := h.Calls.AbandonOnce(ctx, c, key)
	return err
}

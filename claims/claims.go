// Package claims has the calls that a worker is made of, for those who write a loop of their own in place of a pawl.Worker: claim, extend,
// ack, fail, release, and the calls of once keys.
//
// It extends no lease by itself: one that ends gives its task to another worker.
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

// Client are the calls that a worker is made of, for those who write a loop of their own. Who claims by hand extends by
// hand: a lease that ends gives the task to another worker.
type Client struct {
	core   *client.Client
	worker pawlv1.WorkerServiceClient
}

// New gives the calls of a client that a worker is made of.
func New(c *pawl.Client) Client {
	core := client.Of(c.Conn())
	return Client{core: core, worker: pawlv1.NewWorkerServiceClient(core)}
}

// Request says what to claim.
type Request struct {
	Queues   pawl.Queues   // needed
	Types    []string      // only these, if any are named
	Max      int           // tasks at most: default 1, at most 1,000
	MaxBytes int64         // of tasks: ends the claim early, but always gives one task; default 4 MiB
	Lease    time.Duration // 1 s to 12 h; default: the queue's
	Wait     time.Duration // for the first task, at most 60 s; 0: don't
	Worker   string        // who claims: "host/pid"
	Runs     bool          // of one key of a queue with a strict order of keys, several tasks may be given, in order: the caller keeps it; else one
	Key      string        // a repeat with the same key within the lease gives the same claims; made for each call if ""
}

// Claim takes up to Max tasks. None within Wait is an empty answer, not an error.
func (s Client) Claim(ctx context.Context, r Request) ([]*pawl.Claim, error) {
	got, err := s.Poll(ctx, r)
	return got.Claims, err
}

// Polled is the answer to Poll.
type Polled struct {
	Claims []*pawl.Claim
	// Quiet: an operator has made the worker quiet, see Admin.QuietWorker. It gets no tasks, and should go on asking: it is told when it may
	// have some again.
	Quiet       bool
	QuietReason string // as the operator gave it; "": none
}

// Poll is Claim that also says whether an operator has made the worker quiet.
func (s Client) Poll(ctx context.Context, r Request) (Polled, error) {
	if r.Queues == nil {
		return Polled{}, fmt.Errorf("claim: %w", convert.Invalid("queues", "is nil"))
	}
	shares, order := r.Queues.Shares()
	if err := convert.CheckQueues(shares, order); err != nil {
		return Polled{}, fmt.Errorf("claim: %w", err)
	}
	if r.Key == "" {
		key, err := uuid.NewRandom()
		if err != nil {
			return Polled{}, fmt.Errorf("claim key: %w", err)
		}
		r.Key = key.String()
	}
	began := time.Now()
	resp, err := rpc.Call(ctx, s.core.Caller, true, s.worker.Claim, &pawlv1.ClaimRequest{
		Queues: shares, Order: order, Types: r.Types, Max: convert.Int32(r.Max), MaxBytes: r.MaxBytes,
		Lease: convert.Duration(r.Lease), Wait: convert.Duration(r.Wait), Worker: r.Worker, ClaimKey: r.Key, Runs: r.Runs,
	})
	s.core.Telemetry.Claimed(ctx, shares, began, resp.GetTasks(), err)
	if err != nil {
		return Polled{}, fmt.Errorf("claim: %w", err)
	}
	out := Polled{Claims: make([]*pawl.Claim, len(resp.GetTasks())), Quiet: resp.GetQuiet(), QuietReason: resp.GetQuietReason()}
	for i, p := range resp.GetTasks() {
		out.Claims[i] = pawl.NewClaim(p, held{s.calls()}, outcome.Unreadable(s.core.Conn, p))
	}
	return out, nil
}

// Settled is what became of a claim that was settled.
type Settled struct {
	State     pawltype.State
	NextRunAt time.Time // when the task is due again, if it is
	Err       error     // of one item of SettleAll; if set, nothing was done
}

// Ack ends the task with success, and with the result of Claim.SetResult. A repeat gives the first answer again.
func (s Client) Ack(ctx context.Context, c *pawl.Claim) error {
	ctx, told := s.core.Telemetry.Settle(ctx, tracedClaim(c), telemetry.VerbAck)
	_, err := rpc.Call(ctx, s.core.Caller, true, s.worker.Ack, lease.AckRequest(refOf(c), c.Result(), c.ResultContentType()))
	told.End(err)
	if err != nil {
		return fmt.Errorf("ack %q: %w", c.ID, err)
	}
	return nil
}

// Fail says that the run failed with err, which may steer as a handler's error does. Snooze belongs to Release.
func (s Client) Fail(ctx context.Context, c *pawl.Claim, err error) (Settled, error) {
	if err == nil || pawl.OutcomeOf(err) == pawltype.OutcomeSnoozed {
		return Settled{}, fmt.Errorf("fail %q: %w", c.ID, convert.Invalid("error", "%v is not a failure", err))
	}
	ctx, told := s.core.Telemetry.Settle(ctx, tracedClaim(c), telemetry.VerbFail)
	resp, err := rpc.Call(ctx, s.core.Caller, true, s.worker.Fail, lease.FailRequest(refOf(c), err))
	told.End(err)
	if err != nil {
		return Settled{}, fmt.Errorf("fail %q: %w", c.ID, err)
	}
	return Settled{State: convert.State(resp.GetState()), NextRunAt: convert.Time(resp.GetNextRunAt())}, nil
}

// Release gives the task back, to be due after delay. No attempt is used.
func (s Client) Release(ctx context.Context, c *pawl.Claim, delay time.Duration) (Settled, error) {
	ctx, told := s.core.Telemetry.Settle(ctx, tracedClaim(c), telemetry.VerbRelease)
	resp, err := rpc.Call(ctx, s.core.Caller, true, s.worker.Release, lease.ReleaseRequest(refOf(c), delay))
	told.End(err)
	if err != nil {
		return Settled{}, fmt.Errorf("release %q: %w", c.ID, err)
	}
	return Settled{State: convert.State(resp.GetState()), NextRunAt: convert.Time(resp.GetNextRunAt())}, nil
}

// Extension says how a lease is extended.
type Extension struct {
	Lease      time.Duration      // from now; 0: the claim's own
	Progress   *pawltype.Progress // nil: as it is
	Checkpoint []byte             // at most 64 KiB; nil: as it is
}

// Extended is the answer to an extension.
type Extended struct {
	LeaseExpiresAt  time.Time // by the broker's clock
	CancelRequested bool      // a caller cancelled the task: stop
}

// Extend makes the lease end later, and stores progress and checkpoint.
func (s Client) Extend(ctx context.Context, c *pawl.Claim, e Extension) (Extended, error) {
	var progress *pawlv1.Progress
	if e.Progress != nil {
		progress = &pawlv1.Progress{Percent: e.Progress.Percent, Message: convert.CutText(e.Progress.Message, convert.MaxProgressText)}
	}
	resp, err := s.calls().Extend(ctx, refOf(c), e.Lease, progress, e.Checkpoint)
	if err != nil {
		return Extended{}, err
	}
	return Extended{LeaseExpiresAt: convert.Time(resp.GetLeaseExpiresAt()), CancelRequested: resp.GetCancelRequested()}, nil
}

// Settlement ends one claim as a worker would after its handler returned Err: nil acks, an error fails or steers.
type Settlement struct {
	Claim *pawl.Claim
	Err   error
}

// SettleAll ends many claims in as few calls as the limits of one (1,000 claims, 4 MiB) allow, and answers for each, in order.
// If the error is not nil, the answers end where it happened; repeating the rest is safe.
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

// BeginOnce asks for a once key: see pawl.Once, which is made of this, FinishOnce and AbandonOnce.
func (s Client) BeginOnce(ctx context.Context, c *pawl.Claim, key string) (pawltype.OnceAnswer, error) {
	return s.calls().BeginOnce(ctx, refOf(c), key)
}

// FinishOnce records that the effect is there, with its result: JSON, or nothing. It tells until when that is kept, ttl from now, or
// a day if ttl is 0. A repeat gets the first answer again.
func (s Client) FinishOnce(ctx context.Context, c *pawl.Claim, key string, result []byte, ttl time.Duration) (keptUntil time.Time, err error) {
	return s.calls().FinishOnce(ctx, refOf(c), key, result, ttl)
}

// AbandonOnce says that the effect did not come about, so that others may try: the key is free then, or done if it was. After
// ErrUnavailable nobody knows whether the claim still holds the key; don't begin it anew with this claim.
func (s Client) AbandonOnce(ctx context.Context, c *pawl.Claim, key string) (pawltype.OnceState, error) {
	return s.calls().AbandonOnce(ctx, refOf(c), key)
}

func (s Client) calls() lease.Calls { return lease.NewCalls(s.core.Caller, s.core.Telemetry) }

func refOf(c *pawl.Claim) lease.Claim { return lease.Claim{TaskID: c.ID, Type: c.Type, Token: c.Token} }

func tracedClaim(c *pawl.Claim) telemetry.Task {
	return telemetry.Task{ID: c.ID, Type: c.Type, Queue: c.Queue, Attempt: c.Attempt}
}

// held holds a claim that was made by a call.
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

package pawl

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Claims are the calls that a worker is made of, for those who write a loop of their own. Who claims by hand extends by
// hand: a lease that ends gives the task to another worker.
type Claims struct{ client *Client }

// Claims gives the low-level worker calls.
func (c *Client) Claims() Claims { return Claims{c} }

// ClaimRequest says what to claim.
type ClaimRequest struct {
	Queues   Queues        // needed
	Types    []string      // only these, if any are named
	Max      int           // tasks at most: default 1, at most 1,000
	MaxBytes int64         // of tasks: ends the claim early, but always gives one task; default 4 MiB
	Lease    time.Duration // 1 s to 12 h; default: the queue's
	Wait     time.Duration // for the first task, at most 60 s; 0: don't
	Worker   string        // who claims: "host/pid"
	Key      string        // a repeat with the same key within the lease gives the same claims; made for each call if ""
}

// Claim takes up to Max tasks. None within Wait is an empty answer, not an error.
func (s Claims) Claim(ctx context.Context, r ClaimRequest) ([]*Claim, error) {
	got, err := s.Poll(ctx, r)
	return got.Claims, err
}

// Polled is the answer to Poll.
type Polled struct {
	Claims []*Claim
	// Quiet: an operator has made the worker quiet, see Admin.QuietWorker. It gets no tasks, and should go on asking: it is told when it may
	// have some again.
	Quiet       bool
	QuietReason string // as the operator gave it; "": none
}

// Poll is Claim that also says whether an operator has made the worker quiet.
func (s Claims) Poll(ctx context.Context, r ClaimRequest) (Polled, error) {
	if r.Queues == nil {
		return Polled{}, fmt.Errorf("claim: %w", invalid("queues", "is nil"))
	}
	shares, order := r.Queues.shares()
	if err := checkQueues(shares, order); err != nil {
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
	resp, err := call(ctx, s.client, true, s.client.worker.Claim, &pawlv1.ClaimRequest{
		Queues: shares, Order: order, Types: r.Types, Max: clampInt32(r.Max), MaxBytes: r.MaxBytes,
		Lease: durationOrNil(r.Lease), Wait: durationOrNil(r.Wait), Worker: r.Worker, ClaimKey: r.Key,
	})
	s.client.observe.claimed(ctx, &r, began, resp.GetTasks(), err)
	if err != nil {
		return Polled{}, fmt.Errorf("claim: %w", err)
	}
	out := Polled{Claims: make([]*Claim, len(resp.GetTasks())), Quiet: resp.GetQuiet(), QuietReason: resp.GetQuietReason()}
	for i, p := range resp.GetTasks() {
		out.Claims[i] = new(Claim)
		out.Claims[i].set(p, s)
		s.client.lock(out.Claims[i])
	}
	return out, nil
}

// Settled is what became of a claim that was settled.
type Settled struct {
	State     State
	NextRunAt time.Time // when the task is due again, if it is
	Err       error     // of one item of SettleAll; if set, nothing was done
}

// Ack ends the task with success, and with the result of Claim.SetResult. A repeat gives the first answer again.
func (s Claims) Ack(ctx context.Context, c *Claim) error {
	ctx, told := s.client.observe.settle(ctx, c, verbAck)
	_, err := call(ctx, s.client, true, s.client.worker.Ack, ackOf(c))
	told.end(err)
	if err != nil {
		return fmt.Errorf("ack %q: %w", c.ID, err)
	}
	return nil
}

// Fail says that the run failed with err, which may steer as a handler's error does. Snooze belongs to Release.
func (s Claims) Fail(ctx context.Context, c *Claim, err error) (Settled, error) {
	if err == nil || OutcomeOf(err) == OutcomeSnoozed {
		return Settled{}, fmt.Errorf("fail %q: %w", c.ID, invalid("error", "%v is not a failure", err))
	}
	ctx, told := s.client.observe.settle(ctx, c, verbFail)
	resp, err := call(ctx, s.client, true, s.client.worker.Fail, failOf(c, err))
	told.end(err)
	if err != nil {
		return Settled{}, fmt.Errorf("fail %q: %w", c.ID, err)
	}
	return Settled{State: stateOf(resp.GetState()), NextRunAt: timeOf(resp.GetNextRunAt())}, nil
}

// Release gives the task back, to be due after delay. No attempt is used.
func (s Claims) Release(ctx context.Context, c *Claim, delay time.Duration) (Settled, error) {
	ctx, told := s.client.observe.settle(ctx, c, verbRelease)
	resp, err := call(ctx, s.client, true, s.client.worker.Release, releaseOf(c, delay))
	told.end(err)
	if err != nil {
		return Settled{}, fmt.Errorf("release %q: %w", c.ID, err)
	}
	return Settled{State: stateOf(resp.GetState()), NextRunAt: timeOf(resp.GetNextRunAt())}, nil
}

// Extension says how a lease is extended.
type Extension struct {
	Lease      time.Duration // from now; 0: the claim's own
	Progress   *Progress     // nil: as it is
	Checkpoint []byte        // at most 64 KiB; nil: as it is
}

// Extended is the answer to an extension.
type Extended struct {
	LeaseExpiresAt  time.Time // by the broker's clock
	CancelRequested bool      // a caller cancelled the task: stop
}

// Extend makes the lease end later, and stores progress and checkpoint.
func (s Claims) Extend(ctx context.Context, c *Claim, e Extension) (Extended, error) {
	req := &pawlv1.ExtendRequest{TaskId: c.ID, ClaimToken: c.Token, Lease: durationOrNil(e.Lease), Checkpoint: e.Checkpoint}
	if e.Progress != nil {
		req.Progress = &pawlv1.Progress{Percent: e.Progress.Percent, Message: cutText(e.Progress.Message, maxProgressText)}
	}
	resp, err := call(context.WithValue(ctx, claimTypeKey{}, c.Type), s.client, true, s.client.worker.Extend, req)
	if err != nil {
		return Extended{}, fmt.Errorf("extend %q: %w", c.ID, err)
	}
	return Extended{LeaseExpiresAt: timeOf(resp.GetLeaseExpiresAt()), CancelRequested: resp.GetCancelRequested()}, nil
}

// Settlement ends one claim as a worker would after its handler returned Err: nil acks, an error fails or steers.
type Settlement struct {
	Claim *Claim
	Err   error
}

// SettleAll ends many claims in as few calls as the limits of one (1,000 claims, 4 MiB) allow, and answers for each, in order.
// If the error is not nil, the answers end where it happened; repeating the rest is safe.
func (s Claims) SettleAll(ctx context.Context, items []Settlement) ([]Settled, error) {
	out := make([]Settled, 0, len(items))
	for len(out) < len(items) {
		var chunk []ending
		size := 0
		for _, item := range items[len(out):min(len(items), len(out)+maxSettleItems)] {
			e := endingOf(item.Claim, item.Err)
			if size += e.size(); len(chunk) > 0 && size > maxSettleBytes {
				break
			}
			chunk = append(chunk, e)
		}
		answers, err := s.settle(ctx, chunk)
		if err != nil {
			return out, fmt.Errorf("settle %d claims: %w", len(items), err)
		}
		for _, p := range answers {
			settled := Settled{State: stateOf(p.GetState()), NextRunAt: timeOf(p.GetNextRunAt())}
			if p.GetError() != nil {
				settled.Err = errorOf(p.GetError())
			}
			out = append(out, settled)
		}
	}
	return out, nil
}

// settle sends endings by a call of its own and gives the answers in their order.
func (s Claims) settle(ctx context.Context, endings []ending) ([]*pawlv1.Settled, error) {
	req := &pawlv1.SettleRequest{}
	for _, e := range endings {
		e.addTo(req)
	}
	ctx, told := s.client.observe.settleMany(ctx, len(endings))
	resp, err := call(ctx, s.client, true, s.client.worker.Settle, req)
	told.end(err)
	if err != nil {
		return nil, err
	}
	acks, fails, releases := resp.GetAcks(), resp.GetFails(), resp.GetReleases()
	if len(acks) != len(req.Acks) || len(fails) != len(req.Fails) || len(releases) != len(req.Releases) {
		return nil, &Error{Code: codeInternal, Message: fmt.Sprintf("%d settles got %d answers", len(endings), len(acks)+len(fails)+len(releases))}
	}
	out := make([]*pawlv1.Settled, len(endings))
	for i, e := range endings {
		switch {
		case e.ack != nil:
			out[i], acks = acks[0], acks[1:]
		case e.fail != nil:
			out[i], fails = fails[0], fails[1:]
		default:
			out[i], releases = releases[0], releases[1:]
		}
	}
	return out, nil
}

// progress implements holder.
func (s Claims) progress(ctx context.Context, c *Claim, p *pawlv1.Progress) error {
	_, err := s.Extend(ctx, c, Extension{Progress: &Progress{Percent: p.Percent, Message: p.Message}})
	return err
}

// checkpoint implements holder.
func (s Claims) checkpoint(ctx context.Context, c *Claim, data []byte) error {
	_, err := s.Extend(ctx, c, Extension{Checkpoint: data})
	return err
}

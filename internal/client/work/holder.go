package work

import (
	"context"
	"errors"
	"time"

	"github.com/pawlq/pawl/internal/client/lease"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// holder is the lease.Holder of a run's claims: what handlers tell the broker and ask it while they run.
type holder struct{ run *Run }

// Progress queues a handler's progress for the next extension, which is sent as soon as a second has passed since the last one.
func (r holder) Progress(_ context.Context, c lease.Claim, p *pawlv1.Progress) error {
	r.run.mu.Lock()
	defer r.run.mu.Unlock()
	h := r.run.claims[c.Token]
	if h == nil || h.phase != running {
		return nil
	}
	h.progress = p
	soon := time.Now()
	if next := h.extended.Add(time.Second); soon.Before(next) {
		soon = next
	}
	if soon.Before(h.due) {
		h.due = soon
	}
	r.run.sweepAt(h.due)
	return nil
}

// Checkpoint stores a checkpoint in its own call, and waits for the response.
func (r holder) Checkpoint(ctx context.Context, c lease.Claim, data []byte) error {
	sent := time.Now()
	_, err := r.run.cfg.Calls.Extend(ctx, c, 0, nil, data)
	if err == nil {
		r.run.mu.Lock()
		defer r.run.mu.Unlock()
		if h := r.run.claims[c.Token]; h != nil {
			h.confirm(sent)
		}
	}
	return r.endIfLost(c, err)
}

// BeginOnce asks for a once key.
func (r holder) BeginOnce(ctx context.Context, c lease.Claim, key string) (pawltype.OnceAnswer, error) {
	a, err := r.run.cfg.Calls.BeginOnce(ctx, c, key)
	return a, r.endIfLost(c, err)
}

// FinishOnce records that an effect has happened.
func (r holder) FinishOnce(ctx context.Context, c lease.Claim, key string, result []byte, ttl time.Duration) error {
	_, err := r.run.cfg.Calls.FinishOnce(ctx, c, key, result, ttl)
	return r.endIfLost(c, err)
}

// AbandonOnce reports that an effect did not happen.
func (r holder) AbandonOnce(ctx context.Context, c lease.Claim, key string) error {
	_, err := r.run.cfg.Calls.AbandonOnce(ctx, c, key)
	return r.endIfLost(c, err)
}

// endIfLost ends the handler if err says that its claim is gone.
func (r holder) endIfLost(c lease.Claim, err error) error {
	if refusal, ok := errors.AsType[*pawltype.Error](err); ok && refusal.Code == pawltype.ErrStaleClaim {
		r.run.lose(c.Token, refusal.Reason)
	}
	return err
}

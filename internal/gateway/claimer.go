package gateway

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/registry"
)

// Workers that claim by unary calls are in the registry too, and can be quieted: they then get nothing, once the wait they asked
// for has passed, or immediately if they are quieted while they wait.

func registryShares(queues []broker.Share) []registry.Share {
	shares := make([]registry.Share, len(queues))
	for i, q := range queues {
		shares[i] = registry.Share{Queue: q.Queue, Weight: q.Weight}
	}
	return shares
}

// registryRuns converts claims for the registry.
func registryRuns(claimed []broker.Claimed, now time.Time) []registry.Run {
	runs := make([]registry.Run, len(claimed))
	for i := range claimed {
		c := &claimed[i]
		runs[i] = registry.Run{Task: c.ID, Token: c.Token, Type: c.Type, Queue: c.Queue, Attempt: c.Exec.Attempt(), Since: now,
			LeaseUntil: c.Exec.Claim.Until.Time()}
	}
	return runs
}

// takeAs is take for a worker that claims by a unary call. Quiet is the reason why it gets nothing.
func (g *claims) takeAs(ctx context.Context, w *registry.Worker, c broker.ClaimCall, wait time.Duration) (got []broker.Claimed,
	quiet *registry.Quiet, err error) {
	deadline := time.Now().Add(wait)
	for {
		quiet, changed := w.Quiet()
		left := max(time.Until(deadline), 0)
		if quiet != nil {
			again, err := g.earlierClaims(ctx, c)
			if err != nil || len(again) > 0 {
				return again, nil, err
			}
			if left == 0 || !g.until(ctx, changed, left) {
				return nil, quiet, ctx.Err()
			}
			continue
		}
		if got, err = g.takeUntil(ctx, changed, c, left); err == nil || ctx.Err() != nil {
			return got, nil, err
		}
		if changed.Err() == nil {
			return nil, nil, err
		}
		if quiet, _ = w.Quiet(); quiet != nil {
			return nil, quiet, nil // it was quieted while it waited
		}
		// It was quieted, and has been resumed since.
	}
}

// earlierClaims returns what an earlier call with the claim key got: its answer may have been lost.
func (g *claims) earlierClaims(ctx context.Context, c broker.ClaimCall) ([]broker.Claimed, error) {
	if c.ClaimKey == "" {
		return nil, nil
	}
	places, one, err := g.placesOf(ctx, c)
	if err != nil || !one {
		return g.reclaim(ctx, c, places), err
	}
	c.Queues, c.Weighted = nil, false
	got, at, err := g.broker.Claim(ctx, places[0][0], c, 0)
	callinfo.Note(ctx, at)
	return got, err
}

// until waits for the change, and reports whether it came in time.
func (g *claims) until(ctx, changed context.Context, wait time.Duration) bool {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-changed.Done():
		return true
	case <-t.C:
	case <-ctx.Done():
	case <-g.broker.Draining():
	}
	return false
}

// takeUntil is take that ends with the change. Only a claim that waits needs to watch for it.
func (g *claims) takeUntil(ctx, changed context.Context, c broker.ClaimCall, wait time.Duration) ([]broker.Claimed, error) {
	if wait == 0 {
		return g.take(ctx, c, 0)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(changed, cancel)()
	return g.take(ctx, c, wait)
}

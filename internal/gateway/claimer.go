package gateway

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/registry"
	"google.golang.org/grpc/peer"
)

// Who claims by single calls is told of in the registry too, and can be made quiet: it gets nothing then, after as long as it wanted to
// wait, or at once if it is made quiet while it waits.

// addressOf is the host from which a call comes.
func addressOf(ctx context.Context) string {
	if web := callOf(ctx).web; web != nil {
		return hostOf(web.RemoteAddr)
	}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return hostOf(p.Addr.String())
	}
	return ""
}

func registryShares(queues []broker.Share) []registry.Share {
	shares := make([]registry.Share, len(queues))
	for i, q := range queues {
		shares[i] = registry.Share{Queue: q.Queue, Weight: q.Weight}
	}
	return shares
}

// registryRuns are claims as the registry tells of them.
func registryRuns(claimed []broker.Claimed, now time.Time) []registry.Run {
	runs := make([]registry.Run, len(claimed))
	for i := range claimed {
		c := &claimed[i]
		runs[i] = registry.Run{Task: c.ID, Token: c.Token, Type: c.Type, Queue: c.Queue, Attempt: c.Exec.Attempt(), Since: now, LeaseUntil: c.Exec.Claim.Until.Time()}
	}
	return runs
}

// takeAs is take for one who claims by a single call. Quiet says why it gets nothing.
func (g *Gateway) takeAs(ctx context.Context, w *registry.Worker, c broker.ClaimCall, wait time.Duration) (got []broker.Claimed, quiet *registry.Quiet, err error) {
	deadline := time.Now().Add(wait)
	for {
		quiet, changed := w.Quiet()
		left := max(time.Until(deadline), 0)
		if quiet != nil {
			again, err := g.again(ctx, c)
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
		if quiet, _ = w.Quiet(); quiet == nil {
			return nil, nil, err
		}
		return nil, quiet, nil // it was made quiet while it waited
	}
}

// again finds what an earlier call with the claim key got: its answer may have been lost.
func (g *Gateway) again(ctx context.Context, c broker.ClaimCall) ([]broker.Claimed, error) {
	if c.ClaimKey == "" {
		return nil, nil
	}
	places, one, err := g.placesOf(ctx, c)
	if err != nil || !one {
		return g.reclaim(ctx, c, places), err
	}
	c.Queues, c.Weighted = nil, false
	got, at, err := g.broker.Claim(ctx, places[0][0], c, 0)
	saw(ctx, at)
	return got, err
}

// until waits for the change, and says whether it came in time.
func (g *Gateway) until(ctx, changed context.Context, wait time.Duration) bool {
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

// takeUntil is take that ends with the change. Only one that waits needs to look for it.
func (g *Gateway) takeUntil(ctx, changed context.Context, c broker.ClaimCall, wait time.Duration) ([]broker.Claimed, error) {
	if wait == 0 {
		return g.take(ctx, c, 0)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(changed, cancel)()
	return g.take(ctx, c, wait)
}

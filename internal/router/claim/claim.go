package claim

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/forward"
)

// If the answer to a claim at another node is lost, nobody has the tasks until their leases end. So a claim without a key gets one for the
// trip, and whoever loses the answer asks the shard's leader to give back what the key got.

// briefTime is how long a call with other shards to turn to looks for the leader of one.
const briefTime = 200 * time.Millisecond

func (c *Claims) claimHere(ctx context.Context, q Claiming) (TasksClaimed, error) {
	return forward.CallLocal(ctx, c.forward, ClaimTasks, q)
}

func (c *Claims) settleHere(ctx context.Context, shard uint32, calls []broker.Settle) error {
	_, err := forward.CallLocal(ctx, c.forward, SettleClaims, Settling{Shard: shard, Calls: calls})
	return err
}

// Claim claims tasks of one shard, waiting up to wait for the first, whichever nodes lead the shard meanwhile.
func (c *Claims) Claim(ctx context.Context, shard uint32, call broker.ClaimCall, wait time.Duration) ([]broker.Claimed,
	broker.Stamp, error) {
	return c.claimBy(ctx, 0, shard, call, wait)
}

// ClaimNow claims tasks that are ready. Nor does it look for the leader of the shard for long: the caller has others to ask.
func (c *Claims) ClaimNow(ctx context.Context, shard uint32, call broker.ClaimCall) ([]broker.Claimed, broker.Stamp, error) {
	return c.claimBy(ctx, briefTime, shard, call, 0)
}

func (c *Claims) claimBy(ctx context.Context, patience time.Duration, shard uint32, call broker.ClaimCall,
	wait time.Duration) ([]broker.Claimed, broker.Stamp, error) {
	if !c.forward.Leads(shard) {
		return c.claimRemote(ctx, patience, shard, call, wait)
	}
	deadline := time.Now().Add(wait)
	got, err := c.claimHere(ctx, Claiming{Shard: shard, Call: call, Wait: wait})
	if err == nil || !forward.IsElsewhere(err) {
		return got.Out, got.At, err
	}
	return c.claimRemote(ctx, patience, shard, call, max(time.Until(deadline), 0))
}

func (c *Claims) claimRemote(ctx context.Context, patience time.Duration, shard uint32, call broker.ClaimCall,
	wait time.Duration) ([]broker.Claimed, broker.Stamp, error) {
	own := call.ClaimKey == ""
	if own {
		call.ClaimKey = "way/" + rand.Text()
	}
	deadline := time.Now().Add(wait)
	waiting, cancel := c.forward.Life.UntilDrain(ctx)
	defer cancel()
	for {
		out, err := forward.CallRemote(waiting, c.forward, claimFor, patience, Claiming{Shard: shard, Call: call, Wait: wait})
		early := err != nil && waiting.Err() != nil && ctx.Err() == nil
		if (own || early) && errors.Is(err, broker.ErrUnknown) { // nobody will ask for it again
			c.Abandon(shard, call)
		}
		if early {
			return nil, out.At, nil // as if nothing had become ready in time
		}
		// A node that is about to stop ends its waits early.
		wait = time.Until(deadline)
		if err != nil || len(out.Out) > 0 || wait <= forward.EarlyPause || ctx.Err() != nil || c.forward.Life.IsDraining() {
			return out.Out, out.At, err
		}
		c.forward.Life.Sleep(ctx, forward.EarlyPause)
		wait -= forward.EarlyPause
	}
}

// servedClaims holds the claims with keys that run here for other nodes.
type servedClaims struct {
	mu   sync.Mutex
	byID map[claimID]*servedClaim
}

type claimID struct {
	shard   uint32
	ns, key string
}

type servedClaim struct {
	cancel context.CancelFunc
	ended  chan struct{}
	got    bool // whether it may have claimed tasks; read after ended is closed
}

// claimForOthers runs a claim of another node such that it can be abandoned. Tasks that its caller can no longer receive are given back.
func (c *Claims) claimForOthers(ctx context.Context, a Claiming) (TasksClaimed, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	id := claimID{a.Shard, a.Call.Namespace, a.Call.ClaimKey}
	one := &servedClaim{cancel: cancel, ended: make(chan struct{})}
	c.served.begin(id, one)
	defer c.served.end(id, one)
	out, err := c.claimHere(ctx, a)
	one.got = len(out.Out) > 0 || errors.Is(err, broker.ErrUnknown)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil || len(out.Out) == 0 {
		return out, err
	}
	// This is refused if the same claim was repeated meanwhile.
	calls := make([]broker.Settle, len(out.Out))
	for i, t := range out.Out {
		calls[i] = broker.Settle{Verb: broker.GiveBack, Hold: broker.Hold{Namespace: t.Namespace, ID: t.ID, Token: t.Token}}
	}
	back, stop := context.WithTimeout(c.forward.Life.Context(), giveBackTime)
	defer stop()
	if bad := c.settleHere(back, a.Shard, calls); bad != nil {
		c.log.Info("undelivered claims stay in place until their leases end", "shard", a.Shard, "tasks", len(calls), "error", bad)
	}
	return TasksClaimed{}, err
}

func (s *servedClaims) begin(id claimID, c *servedClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID == nil {
		s.byID = map[claimID]*servedClaim{}
	}
	s.byID[id] = c
}

func (s *servedClaims) end(id claimID, c *servedClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(c.ended)
	if s.byID[id] == c {
		delete(s.byID, id)
	}
}

// cancel ends a claim that may still be waiting here; nil: none is.
func (s *servedClaims) cancel(id claimID) *servedClaim {
	s.mu.Lock()
	c := s.byID[id]
	s.mu.Unlock()
	if c != nil {
		c.cancel()
	}
	return c
}

// giveBackTime bounds the release, on this node, of claims that nobody received.
const giveBackTime = 10 * time.Second

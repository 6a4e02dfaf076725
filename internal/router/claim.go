package router

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// If the answer to a claim at another node is lost, nobody has the tasks until their leases end. So a claim without a key gets one for the
// trip, and whoever loses the answer asks the shard's leader to give back what the key got.

type claimArgs struct {
	Shard uint32
	Call  broker.ClaimCall
	Wait  time.Duration
}

// claimAnswer has, for each task, the envelope's timeout, which is hidden by the task's own field of the same name.
type claimAnswer struct {
	Out      []broker.Claimed
	At       broker.Stamp
	Timeouts []time.Duration
}

func (a *claimAnswer) Pack() {
	a.Timeouts = make([]time.Duration, len(a.Out))
	for i := range a.Out {
		if e := a.Out[i].Envelope; e != nil {
			a.Timeouts[i] = e.Timeout
		}
	}
}

func (a *claimAnswer) Unpack() {
	for i := range min(len(a.Out), len(a.Timeouts)) {
		if e := a.Out[i].Envelope; e != nil {
			e.Timeout = a.Timeouts[i]
		}
	}
}

var claim = serve(&method[claimArgs, claimAnswer]{Rule: verb.Rule{Name: "claim"}, run: runClaim, atServer: serveClaim,
	wait: func(a *claimArgs) *time.Duration { return &a.Wait }})

// claimBriefly is claim for callers that have other shards to ask.
var claimBriefly = func() *claimMethod {
	m := *claim
	m.Patience = briefTime
	return &m
}()

func runClaim(ctx context.Context, r *Router, a claimArgs) (out claimAnswer, err error) {
	out.Out, out.At, err = r.cfg.Broker.Claim(ctx, a.Shard, a.Call, a.Wait)
	return out, err
}

// Claim claims tasks of one shard, waiting up to wait for the first, whichever nodes lead the shard meanwhile.
func (r *Router) Claim(ctx context.Context, shard uint32, c broker.ClaimCall, wait time.Duration) ([]broker.Claimed, broker.Stamp, error) {
	return r.claimBy(ctx, claim, shard, c, wait)
}

// ClaimNow claims tasks that are ready. Nor does it look for the leader of the shard for long: the caller has others to ask.
func (r *Router) ClaimNow(ctx context.Context, shard uint32, c broker.ClaimCall) ([]broker.Claimed, broker.Stamp, error) {
	return r.claimBy(ctx, claimBriefly, shard, c, 0)
}

type claimMethod = method[claimArgs, claimAnswer]

func (r *Router) claimBy(ctx context.Context, m *claimMethod, shard uint32, c broker.ClaimCall, wait time.Duration) ([]broker.Claimed, broker.Stamp, error) {
	if !r.leads(shard) {
		return r.claimRemote(ctx, m, shard, c, wait)
	}
	deadline := time.Now().Add(wait)
	got, at, err := r.cfg.Broker.Claim(ctx, shard, c, wait)
	if err == nil || !isElsewhere(err) {
		return got, at, err
	}
	return r.claimRemote(ctx, m, shard, c, max(time.Until(deadline), 0))
}

func (r *Router) claimRemote(ctx context.Context, m *claimMethod, shard uint32, c broker.ClaimCall, wait time.Duration) ([]broker.Claimed, broker.Stamp, error) {
	own := c.ClaimKey == ""
	if own {
		c.ClaimKey = "way/" + rand.Text()
	}
	deadline := time.Now().Add(wait)
	waiting, cancel := r.untilDrain(ctx)
	defer cancel()
	for {
		out, err := callRemote(waiting, r, m, shard, claimArgs{shard, c, wait})
		early := err != nil && waiting.Err() != nil && ctx.Err() == nil
		if (own || early) && errors.Is(err, broker.ErrUnknown) { // nobody will ask for it again
			r.Abandon(shard, c)
		}
		if early {
			return nil, out.At, nil // as if nothing had become ready in time
		}
		// A node that is about to stop ends its waits early.
		wait = time.Until(deadline)
		if err != nil || len(out.Out) > 0 || wait <= earlyPause || ctx.Err() != nil || r.isDraining() {
			return out.Out, out.At, err
		}
		r.sleep(ctx, earlyPause)
		wait -= earlyPause
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
}

// serveClaim runs a claim of another node such that it can be abandoned. Tasks that its caller can no longer receive are given back.
func serveClaim(ctx context.Context, r *Router, a claimArgs) (claimAnswer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	id := claimID{a.Shard, a.Call.Namespace, a.Call.ClaimKey}
	one := &servedClaim{cancel: cancel, ended: make(chan struct{})}
	r.claims.begin(id, one)
	defer r.claims.end(id, one)
	out, err := runClaim(ctx, r, a)
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
	back, stop := context.WithTimeout(r.ctx, giveBackTime)
	defer stop()
	if _, _, bad := r.cfg.Broker.Settle(back, a.Shard, calls); bad != nil {
		r.log.Info("undelivered claims stay in place until their leases end", "shard", a.Shard, "tasks", len(calls), "error", bad)
	}
	return claimAnswer{}, err
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

// cancel ends a claim that may still be waiting here, and returns when it has ended.
func (s *servedClaims) cancel(id claimID) {
	s.mu.Lock()
	c := s.byID[id]
	s.mu.Unlock()
	if c != nil {
		c.cancel()
		<-c.ended
	}
}

const (
	// giveBackTime bounds the release, on this node, of claims that nobody received.
	giveBackTime = 10 * time.Second
	// maxAbandoned bounds the claims with lost answers that are handled at a time. Those of others are held until their leases end.
	maxAbandoned = 1000
	// abandonMin and abandonMax bound how long to try: as long as the lease, after which the tasks are free.
	abandonMin = 10 * time.Second
	abandonMax = 10 * time.Minute
	// abandonPause is the pause between two attempts, in addition to the search for the leader that each involves.
	abandonPause = time.Second
)

// Abandon gives back, in the background, what a claim of unknown outcome may have got. The claim must have a key that will not be used
// again.
func (r *Router) Abandon(shard uint32, c broker.ClaimCall) {
	select {
	case r.abandoned <- struct{}{}:
	default:
		r.log.Warn("a claim whose answer was lost waits for the end of its leases: too many are looked after", "shard", shard)
		return
	}
	lease := c.Lease
	if lease == 0 {
		lease = task.DefaultSettings().Lease
	}
	r.work.Go(func() {
		defer func() { <-r.abandoned }()
		ctx, cancel := context.WithTimeout(r.ctx, min(max(lease, abandonMin), abandonMax))
		defer cancel()
		for ctx.Err() == nil {
			got, err := call(ctx, r, abandon, shard, abandonArgs{shard, c.Namespace, c.ClaimKey})
			if err == nil {
				if got > 0 {
					r.log.Info("claims whose answer was lost were given back", "shard", shard, "tasks", got)
				}
				return
			}
			r.sleep(ctx, abandonPause)
		}
		r.log.Info("a claim whose answer was lost waits for the end of its leases", "shard", shard)
	})
}

type abandonArgs struct {
	Shard     uint32
	Namespace string
	Key       string
}

// abandon finds what a claim key got, by claiming from no queue, and releases it. Finding claims marks them as repeated, so that GiveBack
// would be refused; but nobody else has the key.
var abandon = serve(&method[abandonArgs, int]{Rule: verb.Rule{Name: "abandon", Idempotent: true}, run: func(ctx context.Context, r *Router, a abandonArgs) (int, error) {
	r.claims.cancel(claimID{a.Shard, a.Namespace, a.Key})
	got, _, err := r.cfg.Broker.Claim(ctx, a.Shard, broker.ClaimCall{Namespace: a.Namespace, ClaimKey: a.Key, Max: task.MaxClaim}, 0)
	if err != nil || len(got) == 0 {
		return 0, err
	}
	calls := make([]broker.Settle, len(got))
	for i, t := range got {
		calls[i] = broker.Settle{Verb: broker.Release, Hold: broker.Hold{Namespace: t.Namespace, ID: t.ID, Token: t.Token}}
	}
	_, _, err = r.cfg.Broker.Settle(ctx, a.Shard, calls)
	return len(got), err
}})

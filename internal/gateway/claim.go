package gateway

import (
	"context"
	"log/slog"
	"sync"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/gateway/administration"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/fanout"
	"github.com/pawlq/pawl/internal/gateway/send"
	"github.com/pawlq/pawl/internal/gateway/tasktrace"
	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/task"
)

// workerService implements WorkerService.
type workerService struct {
	pawlv1.UnimplementedWorkerServiceServer
	*claims
	spans tasktrace.Spans
	callinfo.Errors
	registry *registry.Registry // of this node's workers
	limits   task.Limits
	nodes    administration.Admin // nil: this node is alone
	node     string
}

// Claim claims tasks, waiting for the first if asked to.
func (g *workerService) Claim(ctx context.Context, r *pawlv1.ClaimRequest) (*pawlv1.ClaimResponse, error) {
	c, err := apiproto.ClaimOf(callinfo.Namespace(ctx), r, g.limits)
	if err != nil {
		return nil, err
	}
	wait, err := apiproto.WaitOf(r.GetWait())
	if err != nil {
		return nil, err
	}
	if err := mayClaim(ctx, c.Queues); err != nil {
		return nil, err
	}
	callinfo.Waits(ctx, wait)
	me := g.registry.Begin(registry.Hello{Namespace: c.Namespace, Name: c.Worker, Address: callinfo.Address(ctx),
		Queues: registryShares(c.Queues), Types: c.Types})
	defer me.Done()
	got, quiet, err := g.takeAs(ctx, me, c, wait)
	if err != nil {
		return nil, err
	}
	if quiet != nil {
		return &pawlv1.ClaimResponse{Quiet: true, QuietReason: quiet.Reason}, nil
	}
	if got, err = g.fit(ctx, got); err != nil {
		return nil, err
	}
	now := time.Now()
	me.Took(registryRuns(got, now), now)
	g.spans.Claims(got)
	out := &pawlv1.ClaimResponse{Tasks: make([]*pawlv1.ClaimedTask, len(got))}
	for i := range got {
		out.Tasks[i] = apiproto.ClaimedProto(&got[i])
	}
	return out, nil
}

// mayClaim refuses queues that the caller's token does not cover, before the caller is registered as a worker of them.
func mayClaim(ctx context.Context, queues []broker.Share) error {
	for _, q := range queues {
		if err := callinfo.MayUse(ctx, q.Queue); err != nil {
			return err
		}
	}
	return nil
}

// claims claims tasks from the shards of queues, and releases what no worker received.
type claims struct {
	broker   Broker
	cluster  fanout.Cluster
	registry *registry.Registry // of this node's workers
	log      *slog.Logger
	shares   fanout.Picker
	slow     slowShards

	releases sync.WaitGroup // of claims that nobody received
	stopping context.Context
	stop     context.CancelFunc
}

func newClaims() *claims {
	g := &claims{}
	g.stopping, g.stop = context.WithCancel(context.Background())
	return g
}

// close waits for the releases of claims that nobody received. It cuts them off when ctx ends.
func (g *claims) close(ctx context.Context) {
	cut := context.AfterFunc(ctx, g.stop)
	g.releases.Wait()
	cut()
	g.stop()
}

// take claims up to c.Max tasks, waiting up to wait for the first. It never returns claims together with an error; claims for a
// caller that is gone are released.
func (g *claims) take(ctx context.Context, c broker.ClaimCall, wait time.Duration) ([]broker.Claimed, error) {
	places, one, err := g.placesOf(ctx, c)
	if err != nil {
		return nil, err
	}
	var got []broker.Claimed
	if one {
		var at broker.Stamp
		got, at, err = g.broker.Claim(ctx, places[0][0], c, wait)
		callinfo.Note(ctx, at)
	} else {
		got, err = g.takeMany(ctx, c, places, wait)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		g.giveBack(got)
		return nil, err
	}
	return got, nil
}

// placesOf returns the shards of each queue of a claim, and whether it is one shard for all. It creates queues that don't exist
// yet, so that their first task finds the waiting claims.
func (g *claims) placesOf(ctx context.Context, c broker.ClaimCall) (places [][]uint32, one bool, err error) {
	places = make([][]uint32, len(c.Queues))
	room := make([]uint32, len(c.Queues)) // for queues with one place each
	one = true
	for i, name := range c.Queues {
		q, err := g.cluster.Place(ctx, c.Namespace, name.Queue)
		if err != nil {
			return nil, false, err
		}
		if q.Spread() {
			places[i] = q.ClaimOrder()
		} else {
			room[i] = q.Shard
			places[i] = room[i : i+1]
		}
		one = one && len(places[i]) == 1 && places[i][0] == places[0][0]
	}
	return places, one, nil
}

// giveBackTime bounds the release of claims that nobody received. Tasks not released by then wait for their leases to end.
const giveBackTime = 10 * time.Second

// giveBack releases claims that nobody received, so that others need not wait for their leases to end.
func (g *claims) giveBack(claimed []broker.Claimed) {
	if len(claimed) == 0 {
		return
	}
	byShard := map[uint32][]broker.Settle{}
	for _, c := range claimed {
		hold := broker.Hold{Namespace: c.Namespace, ID: c.ID, Token: c.Token}
		byShard[c.ID.Shard()] = append(byShard[c.ID.Shard()], broker.Settle{Verb: broker.GiveBack, Hold: hold})
	}
	for shard, calls := range byShard {
		g.releases.Go(func() {
			ctx, cancel := context.WithTimeout(g.stopping, giveBackTime)
			defer cancel()
			err := parallel.Safely(func() error { _, _, err := g.broker.Settle(ctx, shard, calls); return err })
			if err != nil {
				g.log.Info("undelivered claims stay in place until their leases end", "shard", shard, "tasks", len(calls), "error", err)
			}
		})
	}
}

// fit releases the claims that don't fit into one answer: the shard counts payloads, but headers and checkpoints may be large too. It
// releases all if there is no memory for the answer.
func (g *claims) fit(ctx context.Context, claimed []broker.Claimed) ([]broker.Claimed, error) {
	n, size := apiproto.Fitting(claimed)
	err := send.Take(ctx, size, nil)
	if err != nil {
		n = 0
	}
	g.giveBack(claimed[n:])
	return claimed[:n], err
}

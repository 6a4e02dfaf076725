package test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawlq/pawl/admin"
)

// spreadShards is the number of data shards over which TestClusterSpread spreads its queues.
const spreadShards = 4

// TestClusterSpread respreads two queues every second or two, over shards some of which lose their leader: one of three
// servers is repeatedly killed with -9 under load, each time soon after a move has begun. PAWL_CLUSTER_KILLS sets how
// often.
func TestClusterSpread(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	if err := admin.New(c.operator()).Cluster().AddShards(t.Context(), spreadShards); err != nil {
		t.Fatal(err)
	}
	c.whole()
	w := c.scattered("a", "b")
	var moves atomic.Int64
	moving, stop := context.WithCancel(t.Context())
	var mover sync.WaitGroup
	mover.Go(func() { c.spread(moving, w.cfg.queues, &moves) })
	kills := count(t, "PAWL_CLUSTER_KILLS", 3)
	for range kills {
		before := moves.Load()
		eventually(t, "a queue is shared out anew", startLimit, func() bool { return moves.Load() > before })
		n := c.victim()
		n.kill()
		time.Sleep(rand.N(2 * time.Second)) // downtime
		n.start()
		n.ready()
		w.flow(&w.acked)
	}
	stop()
	mover.Wait()
	w.flow(&w.acked)
	c.settled(w.cfg.queues)
	w.finish()
	c.whole()
	tasks := w.check()
	t.Logf("%d kills, %d moves, %d tasks; %d unanswered enqueues", kills, moves.Load(), tasks, w.unknown.Load())
}

// spread respreads the queues in turn until ctx is done, and counts answered calls in moves.
func (c *nodes) spread(ctx context.Context, queues []string, moves *atomic.Int64) {
	client := c.operator()
	for i := 0; ctx.Err() == nil; i++ {
		shards := rand.Perm(spreadShards)[:1+rand.IntN(spreadShards)]
		for j := range shards {
			shards[j] += dataShard
		}
		call, cancel := context.WithTimeout(ctx, callTime)
		if _, err := admin.New(client).Queues().Spread(call, queues[i%len(queues)], admin.SpreadOptions{Shards: shards}); err == nil {
			moves.Add(1)
		}
		cancel()
		select {
		case <-ctx.Done():
		case <-time.After(rand.N(time.Second)):
		}
	}
}

// settled waits until no slots are moving, and then checks that each belongs to one shard.
func (c *nodes) settled(queues []string) {
	client := c.operator()
	for _, name := range queues {
		var q *admin.Queue
		eventually(c.t, "the slots of "+name+" have arrived", startLimit, func() bool {
			var err error
			if q, err = admin.New(client).Queues().Get(c.t.Context(), name); err != nil {
				return false
			}
			slots := 0
			for _, p := range q.Parts {
				if p.Moving {
					return false
				}
				slots += p.Slots
			}
			return slots == 64
		})
	}
}

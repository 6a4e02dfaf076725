package claim_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/claim"
	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/task"
)

// Claims are watched, removed and settled through both of two nodes at the same time, while the leader changes and
// streams break. Some are settled through the node that knows nothing of their watch. Once all have ended, no node
// watches anything, and each of those that were cancelled while they were watched was reported.
func TestNoWatchIsLeftAfterAStorm(t *testing.T) {
	for seed := range uint64(20) {
		routertest.InFleet(t, 2, func(f *routertest.Fleet) {
			var watches []watch
			var mu sync.Mutex
			reported := map[task.ID]bool{}
			for n := range uint32(2) {
				watches = append(watches, f.Nodes[n+1].WatchClaims(func(l broker.Lost) {
					mu.Lock()
					defer mu.Unlock()
					reported[l.ID] = true
				}))
			}
			f.Put(400)
			got, _, err := f.Nodes[1].Claim(context.Background(), 1, routertest.QueueCall(400), 0)
			if err != nil || len(got) != 400 {
				t.Fatalf("%d claims, %v", len(got), err)
			}
			var cancelled []task.ID
			var all sync.WaitGroup
			for worker := range 8 {
				all.Go(func() {
					r := rand.New(rand.NewPCG(seed, uint64(worker))) // #nosec G404 -- a test that can be repeated
					for _, c := range got[worker*50 : (worker+1)*50] {
						h := broker.Hold{Namespace: routertest.Namespace, ID: c.ID, Token: c.Token}
						earlier := h
						earlier.Token.Fence--
						at := watches[r.IntN(2)]
						at.Add(earlier)
						at.Add(h)
						at.Remove(earlier.ID, earlier.Token)
						if r.IntN(3) == 0 {
							watches[r.IntN(2)].Add(h)
						}
						time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
						through := f.Nodes[1+r.Uint32N(2)]
						switch r.IntN(3) {
						case 0:
							settle(t, through, broker.Settle{Verb: broker.Ack, Hold: h})
							at.Remove(h.ID, h.Token)
						case 1:
							settle(t, through, broker.Settle{Verb: broker.Ack, Hold: h})
						case 2:
							if err := routertest.Cancel(context.Background(), through, h.ID); err != nil {
								t.Error(err)
							}
							mu.Lock()
							cancelled = append(cancelled, h.ID)
							mu.Unlock()
						}
					}
				})
			}
			all.Go(func() {
				r := rand.New(rand.NewPCG(seed, 99)) // #nosec G404 -- a test that can be repeated
				for range 20 {
					time.Sleep(time.Duration(r.IntN(700)) * time.Millisecond)
					if r.IntN(2) == 0 {
						f.CutStreams()
					} else {
						f.Lead(1, 1+r.Uint32N(2))
					}
				}
			})
			all.Wait()
			routertest.Pass(5 * time.Second)
			synctest.Wait()
			for n := range uint32(2) {
				m := f.Nodes[n+1]
				if left := m.Remote(); m.Watched() != 0 || left.Claims+left.Shards != 0 {
					t.Errorf("seed %d: all claims have ended, and node %d watches %d, and has %d of other nodes' in %d shards",
						seed, n+1, m.Watched(), left.Claims, left.Shards)
				}
			}
			for _, id := range cancelled {
				if !reported[id] {
					t.Errorf("seed %d: the loss of the claim of %s was not reported", seed, id)
				}
			}
			for _, w := range watches {
				w.Close()
			}
			routertest.Pass(2 * claim.LinkIdle)
		})
	}
}

// settle repeats a verb until a leader takes it.
func settle(t *testing.T, m *routertest.Member, s broker.Settle) {
	t.Helper()
	if _, _, err := m.Settle(context.Background(), 1, []broker.Settle{s}); err != nil {
		t.Error(err)
	}
}

// A node with many idle claims at a leader elsewhere stops: a few calls tell the leader, which asks no shard about claims that got nothing.
// A task that was on its way to the node is given back, unless its caller has it.
func TestDrainWithManyIdleClaims(t *testing.T) {
	routertest.InFleet(t, 2, func(f *routertest.Fleet) {
		const idle = 3000
		m := f.Nodes[2]
		var all sync.WaitGroup
		var received atomic.Int32
		for range idle {
			all.Go(func() {
				got, _, _ := m.Claim(bg, 1, routertest.QueueCall(1), time.Minute)
				received.Add(int32(len(got))) // #nosec G115 -- one
			})
		}
		routertest.Pass(time.Second)
		id := f.Put(1)[0]
		routertest.Pass(routertest.Latency / 2)
		close(m.Drain) // the answer with the task is on its way
		all.Wait()
		routertest.Pass(5 * time.Second)
		if n := f.Count("abandon"); n < 1 || n > 10 || m.Abandoned() != 0 {
			t.Errorf("%d idle claims led to %d calls of abandon, and %d are still looked after", idle, n, m.Abandoned())
		}
		if x := f.State(id); x.Fence != 1 || (x.State == task.Claimed) != (received.Load() == 1) {
			t.Errorf("the task on its way is %s after %d claims, and %d callers have it", x.State, x.Fence, received.Load())
		}
	})
}

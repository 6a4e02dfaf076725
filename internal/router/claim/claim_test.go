package claim_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/claim"
	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/task"
)

// A waiting claim is served whichever node leads, and follows the leader when it changes.
func TestWaitingClaimFollowsLeader(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		for i, at := range []uint32{2, 3, 1, 3} {
			time.AfterFunc(time.Duration(i+1)*5*time.Second, func() { f.Lead(1, at) })
		}
		time.AfterFunc(24*time.Second, func() { f.Put(1) })
		began := time.Now()
		got, _, err := f.Nodes[1].Claim(context.Background(), 1, routertest.QueueCall(1), time.Minute)
		if took := time.Since(began); err != nil || len(got) != 1 || took < 24*time.Second || took > 25*time.Second {
			t.Errorf("claim across leader changes returned after %s: %v, %v", took, got, err)
		}
		began = time.Now()
		got, _, err = f.Nodes[1].Claim(context.Background(), 1, routertest.QueueCall(1), 30*time.Second)
		if took := time.Since(began); err != nil || len(got) != 0 || took < 29*time.Second || took > 31*time.Second {
			t.Errorf("claim without tasks returned after %s: %v, %v", took, got, err)
		}
	})
}

// A claim over several shards skips one without a leader, and does not make other calls give up earlier.
func TestClaimAcrossShardsSkipsLeaderless(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		f.Put(1)
		f.Lead(1, 0)
		began := time.Now()
		_, _, err := f.Nodes[2].ClaimNow(context.Background(), 1, routertest.QueueCall(1))
		if took := time.Since(began); !errors.Is(err, task.ErrUnavailable) || took < claim.BriefTime || took > 2*claim.BriefTime {
			t.Errorf("ClaimNow without a leader returned after %s: %v", took, err)
		}
		time.AfterFunc(2*time.Second, func() { f.Lead(1, 3) })
		if _, err := f.Nodes[2].Put(1); err != nil {
			t.Errorf("an enqueue gave up as early as the claim did: %v", err)
		}
		if got, _, err := f.Nodes[2].ClaimNow(context.Background(), 1, routertest.QueueCall(2)); err != nil || len(got) != 2 {
			t.Errorf("ClaimNow with a leader: got %d tasks, want 2 (%v)", len(got), err)
		}
	})
}

// A claim whose response was lost is given back, even if the leader changes in the meantime.
func TestLostClaimIsGivenBack(t *testing.T) {
	for _, moves := range []bool{false, true} {
		routertest.InFleet(t, 3, func(f *routertest.Fleet) {
			ids := f.Put(2)
			lose := true
			f.Network = func(_, _ uint32, method string) routertest.Delivery {
				if method == "claim" && lose {
					lose = false
					return routertest.AnswerLost
				}
				return routertest.Arrives
			}
			if moves {
				time.AfterFunc(2*routertest.Latency, func() { f.Lead(1, 3) })
			}
			_, _, err := f.Nodes[2].Claim(context.Background(), 1, routertest.QueueCall(2), time.Minute)
			if !errors.Is(err, broker.ErrUnknown) {
				t.Fatalf("Claim with a lost response: %v, want an unknown outcome", err)
			}
			routertest.Pass(time.Second)
			for _, id := range ids {
				if x := f.State(id); x.State != task.Ready || x.Fence != 1 {
					t.Errorf("leader changed %v: task %s is %s after %d claims, want ready after 1", moves, id, x.State, x.Fence)
				}
			}
		})
	}
}

// A caller that leaves while its claim waits at another node, or while the response is in flight, leaves no claim behind, whatever the
// other node has noticed.
func TestCallerLeavesWaitingClaim(t *testing.T) {
	for _, network := range []routertest.Delivery{routertest.Arrives, routertest.Hangs} {
		routertest.InFleet(t, 3, func(f *routertest.Fleet) {
			f.Network = func(_, _ uint32, method string) routertest.Delivery {
				if method == "claim" {
					return network
				}
				return routertest.Arrives
			}
			for after := range 8 {
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan []broker.Claimed, 1)
				go func() {
					got, _, err := f.Nodes[2].Claim(ctx, 1, routertest.QueueCall(1), time.Minute)
					if err != nil {
						got = nil
					}
					done <- got
				}()
				routertest.Pass(5 * routertest.Latency)
				id := f.Put(1)[0]
				routertest.Pass(time.Duration(after) * routertest.Latency / 2)
				cancel()
				got := <-done
				routertest.Pass(time.Second)
				switch x := f.State(id); {
				case len(got) == 0 && x.State != task.Ready:
					t.Fatalf("delivery %d, cancelled after %d half latencies: the caller got no task, but it is %s",
						network, after, x.State)
				case len(got) == 1 && x.State != task.Claimed:
					t.Fatalf("delivery %d, cancelled after %d half latencies: the caller got the task, but it is %s",
						network, after, x.State)
				}
				f.With(func() { // so that the next round does not see it
					f.Shards[1].Ready = 0
					f.Shards[1].Tasks[id].State = task.Succeeded
				})
			}
			// Nor does a caller that left before there was a task. Later tasks are not affected.
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_, _, _ = f.Nodes[2].Claim(ctx, 1, routertest.QueueCall(1), time.Minute)
			cancel()
			routertest.Pass(time.Second)
			id := f.Put(1)[0]
			routertest.Pass(time.Second)
			if x := f.State(id); x.State != task.Ready || x.Fence != 0 {
				t.Errorf("delivery %d: the claim of a caller that left took the task: %s", network, x.State)
			}
			synctest.Wait()
			for _, m := range f.Nodes {
				if n := m.Served(); n > 0 {
					t.Errorf("node %d still tracks %d served claims", m.Number, n)
				}
			}
		})
	}
}

// A claim that was made while its caller left is given back, even if it has a key, because the caller has not repeated it.
func TestClaimForGoneCallerIsGivenBack(t *testing.T) {
	routertest.InFleet(t, 2, func(f *routertest.Fleet) {
		id := f.Put(1)[0]
		ctx, cancel := context.WithCancel(context.Background())
		f.OnClaim = cancel
		c := routertest.QueueCall(1)
		c.ClaimKey = "mine"
		if got, _, err := f.Nodes[2].Claim(ctx, 1, c, time.Minute); err == nil {
			t.Errorf("Claim of a caller that left returned %v and no error", got)
		}
		routertest.Pass(time.Second)
		if x := f.State(id); x.State != task.Ready || x.Fence != 1 {
			t.Errorf("the task is %s after %d claims, want ready after 1", x.State, x.Fence)
		}
	})
}

// A caller with a claim key repeats the claim and gets what the lost response held, so the claim must not be given back before.
func TestLostClaimWithKeyIsKept(t *testing.T) {
	routertest.InFleet(t, 2, func(f *routertest.Fleet) {
		id := f.Put(1)[0]
		lose := true
		f.Network = func(_, _ uint32, _ string) routertest.Delivery {
			if lose {
				lose = false
				return routertest.AnswerLost
			}
			return routertest.Arrives
		}
		c := routertest.QueueCall(1)
		c.ClaimKey = "mine"
		if _, _, err := f.Nodes[2].Claim(context.Background(), 1, c, 0); !errors.Is(err, broker.ErrUnknown) {
			t.Fatalf("Claim with a lost response: %v, want an unknown outcome", err)
		}
		routertest.Pass(5 * time.Second)
		got, _, err := f.Nodes[2].Claim(context.Background(), 1, c, 0)
		if err != nil || len(got) != 1 || got[0].ID != id || f.State(id).Fence != 1 {
			t.Errorf("the repeated claim got %v, %v", got, err)
		}
	})
}

// Lost claims are given back within their lease. After that they are no longer tracked.
func TestLostClaimInPartition(t *testing.T) {
	routertest.InFleet(t, 2, func(f *routertest.Fleet) {
		id := f.Put(1)[0]
		first, cut := true, true
		f.Network = func(_, _ uint32, _ string) routertest.Delivery {
			switch {
			case first:
				first = false
				return routertest.AnswerLost
			case cut:
				return routertest.NotSent
			}
			return routertest.Arrives
		}
		c := routertest.QueueCall(1)
		c.Lease = time.Minute
		_, _, _ = f.Nodes[2].Claim(context.Background(), 1, c, 0)
		routertest.Pass(40 * time.Second)
		f.With(func() { cut = false })
		routertest.Pass(5 * time.Second)
		if x := f.State(id); x.State != task.Ready {
			t.Errorf("after the partition the task is %s, want ready", x.State)
		}
		f.With(func() { first, cut = true, true })
		_, _, _ = f.Nodes[2].Claim(context.Background(), 1, c, 0)
		routertest.Pass(80 * time.Second)
		synctest.Wait()
		if n := f.Nodes[2].Abandoned(); n != 0 {
			t.Errorf("%d lost claims are still tracked after their lease expired", n)
		}
	})
}

// One task wakes one of a thousand waiters at another node, which share one watch, and no waiter is forgotten.
func TestManyWaitersShareAWatch(t *testing.T) {
	routertest.InFleet(t, 2, func(f *routertest.Fleet) {
		const waiters = 1000
		m := f.Nodes[2]
		claimed, wakes := 0, 0
		done := make(chan bool, waiters)
		for range waiters {
			go func() {
				defer func() { done <- true }()
				for {
					if err := m.Await(context.Background(), 1, routertest.QueueCall(1)); err != nil {
						t.Error(err)
						return
					}
					got, _, err := m.Claim(context.Background(), 1, routertest.QueueCall(1), 0)
					if err != nil {
						t.Error(err)
						return
					}
					f.With(func() { wakes++ })
					if len(got) == 1 {
						f.With(func() { claimed++ })
						return
					}
				}
			}()
		}
		routertest.Pass(time.Second)
		if n := f.Waiting(); n != 1 {
			t.Errorf("%d watches at the leader, want 1", n)
		}
		f.Put(1)
		routertest.Pass(time.Second)
		f.With(func() {
			if claimed != 1 || wakes > 16 {
				t.Errorf("one task led to %d claims and woke %d waiters, want 1 claim and at most 16", claimed, wakes)
			}
			wakes = 0
		})
		began := time.Now()
		f.Put(waiters - 1)
		for range waiters {
			<-done
		}
		if took := time.Since(began); claimed != waiters || took > time.Second || wakes > 2*waiters {
			t.Errorf("%d tasks were claimed and %d waiters woken in %s", claimed, wakes, took)
		}
		synctest.Wait()
		if m.Watches() != 0 {
			t.Error("a watch without waiters still exists")
		}
	})
}

// A waiter that is woken and does not claim leaves the task to the next.
func TestWokenWaiterLeaves(t *testing.T) {
	routertest.InFleet(t, 2, func(f *routertest.Fleet) {
		m := f.Nodes[2]
		woken := make(chan int, 10)
		for i := range 3 {
			go func() {
				if m.Await(context.Background(), 1, routertest.QueueCall(1)) == nil {
					woken <- i
				}
			}()
			routertest.Pass(routertest.Latency)
		}
		routertest.Pass(time.Second)
		f.Put(1)
		for range 3 { // none of them takes the task
			select {
			case <-woken:
			case <-time.After(time.Second):
				t.Fatal("a waiter was not woken while a task is ready")
			}
		}
	})
}

// Shared watches survive leader changes without notices, and go on when their first waiter leaves.
func TestSharedWatchContinues(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		m := f.Nodes[1] // it leads: the watch starts here and moves to another node
		first, cancel := context.WithCancel(context.Background())
		gone := make(chan error, 1)
		go func() { gone <- m.Await(first, 1, routertest.QueueCall(1)) }()
		routertest.Pass(time.Second)
		for i, at := range []uint32{2, 0, 3} {
			time.AfterFunc(time.Duration(i+1)*20*time.Second, func() { f.Lead(1, at) })
		}
		routertest.Pass(30 * time.Second)
		second := make(chan time.Duration, 1)
		began := time.Now()
		go func() {
			if m.Await(context.Background(), 1, routertest.QueueCall(1)) == nil {
				second <- time.Since(began)
			}
		}()
		routertest.Pass(time.Second)
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("Await of the first waiter: %v, want cancelled", err)
		}
		routertest.Pass(time.Minute)
		f.Put(1)
		select {
		case <-second:
		case <-time.After(3 * time.Second):
			t.Error("the second waiter was not woken")
		}
		// A claim of another form has its own watch.
		other := routertest.QueueCall(1)
		other.Types = []string{"x"}
		ctx, cancel2 := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel2()
		f.With(func() { f.Shards[1].Ready = 0 })
		go func() { _ = m.Await(ctx, 1, routertest.QueueCall(1)) }()
		go func() { _ = m.Await(ctx, 1, other) }()
		routertest.Pass(time.Second)
		if n := f.Waiting(); n != 2 {
			t.Errorf("%d watches for two forms, want 2", n)
		}
		routertest.Pass(20 * time.Second)
		if n := f.Waiting(); n != 0 {
			t.Errorf("%d watches remain after all waiters left", n)
		}
	})
}

// A watch that times out is renewed and wakes no waiter.
func TestSharedWatchTimesOut(t *testing.T) {
	routertest.InFleet(t, 2, func(f *routertest.Fleet) {
		ctx, cancel := context.WithTimeout(context.Background(), 3*claim.AwaitTime)
		defer cancel()
		began := time.Now()
		err := f.Nodes[2].Await(ctx, 1, routertest.QueueCall(1))
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != 3*claim.AwaitTime || f.Count("await") > 4 {
			t.Errorf("Await ended after %s and %d watches: %v", took, f.Count("await"), err)
		}
	})
}

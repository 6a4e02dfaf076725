package router

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
)

func queueCall(max int) broker.ClaimCall {
	return broker.ClaimCall{Namespace: ns, Queues: []broker.Share{{Queue: "q"}}, Max: max, MaxBytes: 1 << 20, Worker: "w"}
}

// waiting returns how many calls of Await run at the leader.
func (f *fleet) waiting() (n int) {
	f.with(func() { n = f.shards[1].awaits })
	return n
}

// state returns a task as its shard has it.
func (f *fleet) state(id task.ID) (t fakeTask) {
	f.with(func() { t = *f.shards[id.Shard()].tasks[id] })
	return t
}

// A waiting claim is served whichever node leads, and follows the leader.
func TestAClaimWaitsWhereTheLeaderIs(t *testing.T) {
	inFleet(t, 3, func(f *fleet) {
		for i, at := range []uint32{2, 3, 1, 3} {
			time.AfterFunc(time.Duration(i+1)*5*time.Second, func() { f.lead(1, at) })
		}
		time.AfterFunc(24*time.Second, func() { f.mustPut(1) })
		began := time.Now()
		got, _, err := f.nodes[1].Claim(context.Background(), 1, queueCall(1), time.Minute)
		if took := time.Since(began); err != nil || len(got) != 1 || took < 24*time.Second || took > 25*time.Second {
			t.Errorf("after %s: %v, %v", took, got, err)
		}
		began = time.Now()
		got, _, err = f.nodes[1].Claim(context.Background(), 1, queueCall(1), 30*time.Second)
		if took := time.Since(began); err != nil || len(got) != 0 || took < 29*time.Second || took > 31*time.Second {
			t.Errorf("in vain, after %s: %v, %v", took, got, err)
		}
	})
}

// A claim over several shards skips one without a leader, and no other call gives up earlier because of it.
func TestAClaimWithOthersToAskIsBrief(t *testing.T) {
	inFleet(t, 3, func(f *fleet) {
		f.mustPut(1)
		f.lead(1, 0)
		began := time.Now()
		_, _, err := f.nodes[2].ClaimNow(context.Background(), 1, queueCall(1))
		if took := time.Since(began); !errors.Is(err, task.ErrUnavailable) || took < briefTime || took > 2*briefTime {
			t.Errorf("without a leader, after %s: %v", took, err)
		}
		time.AfterFunc(2*time.Second, func() { f.lead(1, 3) })
		if _, err := f.nodes[2].put(1); err != nil {
			t.Errorf("others look no longer than it did: %v", err)
		}
		if got, _, err := f.nodes[2].ClaimNow(context.Background(), 1, queueCall(2)); err != nil || len(got) != 2 {
			t.Errorf("got %d tasks, %v", len(got), err)
		}
	})
}

// A claim that was made and whose answer was lost is given back, even if the leader changes in the meantime.
func TestALostClaimIsGivenBack(t *testing.T) {
	for _, moves := range []bool{false, true} {
		inFleet(t, 3, func(f *fleet) {
			ids := f.mustPut(2)
			lose := true
			f.network = func(_, _ uint32, method string) fate {
				if method == "claim" && lose {
					lose = false
					return answerLost
				}
				return arrives
			}
			if moves {
				time.AfterFunc(2*latency, func() { f.lead(1, 3) })
			}
			_, _, err := f.nodes[2].Claim(context.Background(), 1, queueCall(2), time.Minute)
			if !errors.Is(err, broker.ErrUnknown) {
				t.Fatalf("got %v", err)
			}
			pass(time.Second)
			for _, id := range ids {
				if x := f.state(id); x.state != task.Ready || x.fence != 1 {
					t.Errorf("moves %v: %s is %s after %d claims", moves, id, x.state, x.fence)
				}
			}
		})
	}
}

// A caller that leaves while its claim waits elsewhere, or while the answer is in flight, leaves no claim behind, whatever the other node
// has noticed.
func TestAClaimWhoseCallerLeaves(t *testing.T) {
	for _, network := range []fate{arrives, hangs} {
		inFleet(t, 3, func(f *fleet) {
			f.network = func(_, _ uint32, method string) fate {
				if method == "claim" {
					return network
				}
				return arrives
			}
			for after := range 8 {
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan []broker.Claimed, 1)
				go func() {
					got, _, err := f.nodes[2].Claim(ctx, 1, queueCall(1), time.Minute)
					if err != nil {
						got = nil
					}
					done <- got
				}()
				pass(5 * latency)
				id := f.mustPut(1)[0]
				pass(time.Duration(after) * latency / 2)
				cancel()
				got := <-done
				pass(time.Second)
				switch x := f.state(id); {
				case len(got) == 0 && x.state != task.Ready:
					t.Fatalf("fate %d, left after %d: nobody got the task, and it is %s", network, after, x.state)
				case len(got) == 1 && x.state != task.Claimed:
					t.Fatalf("fate %d, left after %d: the task was given, and it is %s", network, after, x.state)
				}
				f.with(func() { // out of the way
					f.shards[1].ready = 0
					f.shards[1].tasks[id].state = task.Succeeded
				})
			}
			// Nor does one that left before there was a task. Later tasks are not affected.
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_, _, _ = f.nodes[2].Claim(ctx, 1, queueCall(1), time.Minute)
			cancel()
			pass(time.Second)
			id := f.mustPut(1)[0]
			pass(time.Second)
			if x := f.state(id); x.state != task.Ready || x.fence != 0 {
				t.Errorf("fate %d: a claim of nobody took the task: %s", network, x.state)
			}
			synctest.Wait()
			for _, m := range f.nodes {
				if n := len(m.claims.byID); n > 0 {
					t.Errorf("node %d remembers %d claims", m.number, n)
				}
			}
		})
	}
}

// A claim that was made as its caller left is given back, even if it has a key: nobody has repeated it.
func TestAClaimMadeForACallerWhoLeft(t *testing.T) {
	inFleet(t, 2, func(f *fleet) {
		id := f.mustPut(1)[0]
		ctx, cancel := context.WithCancel(context.Background())
		f.onClaim = cancel
		c := queueCall(1)
		c.ClaimKey = "mine"
		if got, _, err := f.nodes[2].Claim(ctx, 1, c, time.Minute); err == nil {
			t.Errorf("got %v", got)
		}
		pass(time.Second)
		if x := f.state(id); x.state != task.Ready || x.fence != 1 {
			t.Errorf("the task is %s after %d claims", x.state, x.fence)
		}
	})
}

// A caller with a key of its own repeats the claim and gets what the lost answer held: it must not be given back before.
func TestALostClaimWithAKeyWaitsForItsRepeat(t *testing.T) {
	inFleet(t, 2, func(f *fleet) {
		id := f.mustPut(1)[0]
		lose := true
		f.network = func(_, _ uint32, _ string) fate {
			if lose {
				lose = false
				return answerLost
			}
			return arrives
		}
		c := queueCall(1)
		c.ClaimKey = "mine"
		if _, _, err := f.nodes[2].Claim(context.Background(), 1, c, 0); !errors.Is(err, broker.ErrUnknown) {
			t.Fatalf("got %v", err)
		}
		pass(5 * time.Second)
		got, _, err := f.nodes[2].Claim(context.Background(), 1, c, 0)
		if err != nil || len(got) != 1 || got[0].ID != id || f.state(id).fence != 1 {
			t.Errorf("the repeat got %v, %v", got, err)
		}
	})
}

// Lost claims are handled for as long as their lease, and no longer.
func TestALostClaimInAPartition(t *testing.T) {
	inFleet(t, 2, func(f *fleet) {
		id := f.mustPut(1)[0]
		first, cut := true, true
		f.network = func(_, _ uint32, _ string) fate {
			switch {
			case first:
				first = false
				return answerLost
			case cut:
				return notSent
			}
			return arrives
		}
		c := queueCall(1)
		c.Lease = time.Minute
		_, _, _ = f.nodes[2].Claim(context.Background(), 1, c, 0)
		pass(40 * time.Second)
		f.with(func() { cut = false })
		pass(5 * time.Second)
		if x := f.state(id); x.state != task.Ready {
			t.Errorf("after the partition the task is %s", x.state)
		}
		f.with(func() { first, cut = true, true })
		_, _, _ = f.nodes[2].Claim(context.Background(), 1, c, 0)
		pass(80 * time.Second)
		synctest.Wait()
		if n := len(f.nodes[2].abandoned); n != 0 {
			t.Errorf("%d lost claims are looked after for ever", n)
		}
	})
}

// One task wakes one of a thousand that wait for it at another node, over one shared watch; and none is forgotten.
func TestManyWaitersShareAWatch(t *testing.T) {
	inFleet(t, 2, func(f *fleet) {
		const waiters = 1000
		m := f.nodes[2]
		claimed, wakes := 0, 0
		done := make(chan bool, waiters)
		for range waiters {
			go func() {
				defer func() { done <- true }()
				for {
					if err := m.Await(context.Background(), 1, queueCall(1)); err != nil {
						t.Error(err)
						return
					}
					got, _, err := m.Claim(context.Background(), 1, queueCall(1), 0)
					if err != nil {
						t.Error(err)
						return
					}
					f.with(func() { wakes++ })
					if len(got) == 1 {
						f.with(func() { claimed++ })
						return
					}
				}
			}()
		}
		pass(time.Second)
		if n := f.waiting(); n != 1 {
			t.Errorf("%d watches at the other node", n)
		}
		f.mustPut(1)
		pass(time.Second)
		f.with(func() {
			if claimed != 1 || wakes > 16 {
				t.Errorf("one task: %d claims by %d who were woken", claimed, wakes)
			}
			wakes = 0
		})
		began := time.Now()
		f.mustPut(waiters - 1)
		for range waiters {
			<-done
		}
		if took := time.Since(began); claimed != waiters || took > time.Second || wakes > 2*waiters {
			t.Errorf("%d claims by %d who were woken, in %s", claimed, wakes, took)
		}
		synctest.Wait()
		if len(m.awaits.byForm) != 0 {
			t.Error("a watch without waiters goes on")
		}
	})
}

// A waiter that is woken and does not claim leaves the task to the next.
func TestAWokenWaiterThatLeaves(t *testing.T) {
	inFleet(t, 2, func(f *fleet) {
		m := f.nodes[2]
		woken := make(chan int, 10)
		for i := range 3 {
			go func() {
				if m.Await(context.Background(), 1, queueCall(1)) == nil {
					woken <- i
				}
			}()
			pass(latency)
		}
		pass(time.Second)
		f.mustPut(1)
		for range 3 { // none of them takes the task
			select {
			case <-woken:
			case <-time.After(time.Second):
				t.Fatal("a waiter is left behind while a task is ready")
			}
		}
	})
}

// Shared watches survive changes of leader, without notices and without their first waiter.
func TestASharedWatchGoesOn(t *testing.T) {
	inFleet(t, 3, func(f *fleet) {
		m := f.nodes[1] // it leads: the watch starts here and moves away
		first, cancel := context.WithCancel(context.Background())
		gone := make(chan error, 1)
		go func() { gone <- m.Await(first, 1, queueCall(1)) }()
		pass(time.Second)
		for i, at := range []uint32{2, 0, 3} {
			time.AfterFunc(time.Duration(i+1)*20*time.Second, func() { f.lead(1, at) })
		}
		pass(30 * time.Second)
		second := make(chan time.Duration, 1)
		began := time.Now()
		go func() {
			if m.Await(context.Background(), 1, queueCall(1)) == nil {
				second <- time.Since(began)
			}
		}()
		pass(time.Second)
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("the first: %v", err)
		}
		pass(time.Minute)
		f.mustPut(1)
		select {
		case <-second:
		case <-time.After(3 * time.Second):
			t.Error("the second was not woken")
		}
		// Another form is another watch.
		other := queueCall(1)
		other.Types = []string{"x"}
		ctx, cancel2 := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel2()
		f.with(func() { f.shards[1].ready = 0 })
		go func() { _ = m.Await(ctx, 1, queueCall(1)) }()
		go func() { _ = m.Await(ctx, 1, other) }()
		pass(time.Second)
		if n := f.waiting(); n != 2 {
			t.Errorf("%d watches for two forms", n)
		}
		pass(20 * time.Second)
		if n := f.waiting(); n != 0 {
			t.Errorf("%d watches when everybody has left", n)
		}
	})
}

// A watch that times out is renewed, and wakes nobody.
func TestASharedWatchInVain(t *testing.T) {
	inFleet(t, 2, func(f *fleet) {
		ctx, cancel := context.WithTimeout(context.Background(), 3*awaitTime)
		defer cancel()
		began := time.Now()
		err := f.nodes[2].Await(ctx, 1, queueCall(1))
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != 3*awaitTime || f.count("await") > 4 {
			t.Errorf("after %s and %d watches: %v", took, f.count("await"), err)
		}
	})
}

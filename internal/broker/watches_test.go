package broker

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// watchesLeft returns how many claims of shard one are watched, and how many these watches hold.
func (w *world) watchesLeft(all ...*ClaimWatch) (inShard, held int) {
	w.t.Helper()
	r, err := w.replica(one)
	w.must(err)
	r.watches.mu.Lock()
	defer r.watches.mu.Unlock()
	for _, c := range r.watches.byClaim {
		for ; c != nil; c = c.next {
			inShard++
		}
	}
	for _, watch := range all {
		watch.mu.Lock()
		held += len(watch.held)
		watch.mu.Unlock()
	}
	return inShard, held
}

// Each watched claim is read once in a term, and again after a read has failed.
func TestWatchedClaimsAreReadAgain(t *testing.T) {
	h := &watches{wake: make(chan struct{}, 1), byClaim: map[claimKey]*watched{}}
	w := (&Broker{}).WatchClaims(nil, nil)
	add := func(n uint64) { h.add(w, Hold{ID: task.NewID(one, 1, n), Token: task.Token{Fence: 1, Nonce: n}}) }
	add(1)
	for i, c := range []struct {
		do   func()
		term uint64
		want int
	}{
		{func() {}, 3, 1}, {func() {}, 3, 0}, {func() { add(2) }, 3, 1}, {h.readAgain, 3, 2}, {func() {}, 3, 0},
		{func() {}, 4, 2}, {func() {}, 4, 0}, {func() { h.remove(claimKey{task.NewID(one, 1, 1), 1, 1}, w); h.readAgain() }, 4, 1},
	} {
		c.do()
		if got := len(h.unread(c.term)); got != c.want {
			t.Errorf("step %d, in term %d: %d claims are read, want %d", i+1, c.term, got, c.want)
		}
	}
}

// A watch ends with its claim, although nobody removes it: the claim is settled by a call that does not know of it, as
// through another node. It is reported as completed. A claim that is held on is watched as long as it is.
func TestWatchesEndWithTheirClaims(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, verb := range []Settle{{Verb: Ack}, {Verb: Fail}, {Verb: Release}, {Verb: GiveBack}} {
			w.enqueue(task.Spec{Queue: "a"})
			claimed := (<-w.claim(context.Background(), call("a"), 0))[0]
			first, lost := w.watch()
			second, _ := w.watch() // of another node that was asked to extend it
			for _, watch := range []*ClaimWatch{first, second} {
				watch.Add(hold(claimed))
				watch.Add(hold(claimed)) // again
			}
			w.pass(time.Minute / 4)
			if inShard, held := w.watchesLeft(first, second); inShard != 2 || held != 2 || len(lost) != 0 {
				t.Errorf("%v: while it is held, the claim has %d watches in the shard, and %d in all, want 2; %d losses were reported",
					verb.Verb, inShard, held, len(lost))
			}
			verb.Hold = hold(claimed)
			w.must(w.settle(verb).Err)
			w.pass(time.Second)
			if inShard, held := w.watchesLeft(first, second); inShard != 0 || held != 0 || len(lost) != 1 ||
				(<-lost).Reason != task.StaleCompleted {
				t.Errorf("%v: after its end, the claim has %d watches in the shard, and %d in all, want none, and one report of "+
					"its completion",
					verb.Verb, inShard, held)
			}
			w.must(operateTask(context.Background(), w.Broker, Cancel, w.enqueue(task.Spec{Queue: "b"})[0])) // something else happens
			if verb.Verb != Ack {
				_ = operateTask(context.Background(), w.Broker, Cancel, claimed.ID)
			}
		}
	})
}

// The watch of an old claim is removed while a new claim of the task is added, in any order: the new one stays watched.
// After Close, nothing is added any more, and a claim that is added at the same moment is not left behind.
func TestWatchesOfOneTask(t *testing.T) {
	inWorld(t, func(w *world) {
		w.enqueue(task.Spec{Queue: "a"})
		old := (<-w.claim(context.Background(), call("a"), 0))[0]
		w.settle(Settle{Verb: GiveBack, Hold: hold(old)})
		now := (<-w.claim(context.Background(), call("a"), 0))[0]
		for range 500 {
			watch, _ := w.watch()
			watch.Add(hold(old))
			var both sync.WaitGroup
			both.Go(func() { watch.Remove(old.ID, old.Token) })
			both.Go(func() { watch.Add(hold(now)) })
			both.Wait()
			if inShard, held := w.watchesLeft(watch); inShard != 1 || held != 1 {
				t.Fatalf("after Remove(old) and Add(new) the claim has %d watches in the shard, and %d in all, want 1", inShard, held)
			}
			both.Go(func() { watch.Close() })
			both.Go(func() { watch.Add(hold(old)) })
			both.Go(func() { watch.Remove(now.ID, now.Token) })
			both.Wait()
			if inShard, held := w.watchesLeft(watch); inShard != 0 || held != 0 || watch.Add(hold(now)) {
				t.Fatalf("after Close the claim has %d watches in the shard, and %d in all, want none, and none can be added", inShard,
					held)
			}
		}
	})
}

// A claim that is removed while it is being added, before its shard knows of the watch, is not left behind there.
func TestClaimIsRemovedWhileItIsAdded(t *testing.T) {
	inWorld(t, func(w *world) {
		w.enqueue(task.Spec{Queue: "a"})
		claimed := (<-w.claim(context.Background(), call("a"), 0))[0]
		watch, _ := w.watch()
		r, err := w.replica(one)
		w.must(err)
		k := keyOf(claimed.ID, claimed.Token)
		added := make(chan bool)
		r.watches.mu.Lock()
		go func() { added <- watch.Add(hold(claimed)) }()
		for !watch.holds(k) {
			runtime.Gosched()
		}
		watch.forget(k) // as Remove does, which then finds nothing in the shard
		r.watches.mu.Unlock()
		<-added
		if inShard, held := w.watchesLeft(watch); inShard != 0 || held != 0 {
			t.Errorf("the claim was removed, and has %d watches in the shard, and %d in all", inShard, held)
		}
	})
}

// Many claims are watched, removed, extended and settled at the same time by holders of two nodes, each of which knows
// only what went through it. Once all claims have ended, nothing is watched.
func TestNoWatchIsLeftAfterAStorm(t *testing.T) {
	inWorld(t, func(w *world) {
		var watches []*ClaimWatch
		for range 2 {
			watch := w.WatchClaims(func(Lost) {}, func([]Hold) {})
			watches = append(watches, watch)
		}
		var all sync.WaitGroup
		for worker := range uint64(8) {
			all.Go(func() {
				r := rand.New(rand.NewPCG(worker, 5)) // #nosec G404 -- a test that can be repeated
				for range 60 {
					spec := task.Spec{Queue: "a", Type: "job"}
					spec.Fill()
					if _, _, err := w.Enqueue(context.Background(), one, ns, []task.Spec{spec}); err != nil {
						t.Error(err)
					}
					got, _, err := w.Claim(context.Background(), one, call("a"), time.Second)
					if err != nil {
						t.Error(err)
					}
					for _, c := range got {
						from, to := watches[r.IntN(2)], watches[r.IntN(2)]
						from.Add(hold(c))
						if r.IntN(2) == 0 {
							time.Sleep(time.Duration(r.IntN(1000)) * time.Millisecond)
						}
						if r.IntN(2) == 0 {
							to.Add(hold(c))
						}
						verb := []Verb{Ack, Fail, Release, GiveBack}[r.IntN(4)]
						if _, _, err := w.Settle(context.Background(), one, []Settle{{Verb: verb, Hold: hold(c)}}); err != nil {
							t.Error(err)
						}
						if r.IntN(2) == 0 {
							to.Remove(c.ID, c.Token)
						}
						if r.IntN(4) == 0 {
							from.Add(hold(c)) // late
						}
					}
				}
			})
		}
		all.Wait()
		w.pass(time.Second)
		c := call("a")
		c.Max = 1000
		got, _, err := w.Claim(context.Background(), one, c, 0)
		w.must(err)
		for _, c := range got {
			w.settle(Settle{Verb: Ack, Hold: hold(c)})
		}
		w.pass(time.Second)
		if inShard, held := w.watchesLeft(watches...); inShard != 0 || held != 0 {
			t.Errorf("all claims have ended, and %d are watched in the shard, %d by the nodes", inShard, held)
		}
	})
}

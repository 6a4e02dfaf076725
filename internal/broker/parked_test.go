package broker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Callers that have left leave no parked claim behind, however many types they asked for and however they left; and what is remembered of their polls
// is bounded.
func TestDepartedCallersLeaveNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		r, err := w.replica(one)
		w.must(err)
		storm := func(n int, leave func(c ClaimCall)) {
			for i := range n {
				c := call("idle", "other")
				for k := range 200 {
					c.Types = append(c.Types, fmt.Sprintf("type-%d-%d-%s", i, k, strings.Repeat("x", 80)))
				}
				leave(c)
			}
		}
		storm(1000, func(c ClaimCall) {
			if got := <-w.claim(context.Background(), c, time.Millisecond); len(got) > 0 {
				t.Errorf("a claim of an idle queue got %v", got)
			}
		})
		storm(1000, func(c ClaimCall) {
			ctx, hangUp := context.WithTimeout(context.Background(), time.Millisecond)
			defer hangUp()
			if err := w.Await(ctx, one, c); err == nil {
				t.Error("an idle queue has a task")
			}
		})
		storm(10, func(c ClaimCall) { // who left before the call ran
			ctx, hangUp := context.WithCancel(context.Background())
			hangUp()
			_, _, _ = w.Claim(ctx, one, c, time.Minute)
			_ = w.Await(ctx, one, c)
		})
		w.pass(time.Second)
		if r.claims.some() {
			t.Errorf("%d queues have parked claims", len(r.claims.queues))
		}
		sum := 0
		for name, q := range r.polls.queues {
			of := 0
			for types := range q.byTypes {
				of += len(types)
			}
			if sum += of; of != q.bytes || of > maxQueueBytes {
				t.Errorf("the polls of %v have %d bytes of types, counted %d", name, of, q.bytes)
			}
		}
		if sum != r.polls.bytes {
			t.Errorf("polls have %d bytes of types, counted %d", sum, r.polls.bytes)
		}
	})
}

// block holds the shard's loop up in a call, until it is released.
func (w *world) block(r *replica) (release func()) {
	held := make(chan struct{})
	go func() {
		_, _, err := changeOf(context.Background(), r, ns, func(*engine.Round) (struct{}, error) { <-held; return struct{}{}, nil })
		w.must(err)
	}()
	synctest.Wait()
	return sync.OnceFunc(func() { close(held) })
}

// A claim that waits gets no task that expired while the shard was held up, but the task behind thousands of them.
func TestWaitingClaimPassesExpiredTasks(t *testing.T) {
	inWorld(t, func(w *world) {
		r, err := w.replica(one)
		w.must(err)
		queue := func(version uint64, paused bool) {
			w.must(copyQueues(w.t.Context(), w.Broker, one, map[string]task.QueueConfig{"q": {Version: version, Settings: task.DefaultSettings(), Paused: paused}}))
		}
		queue(8, true)
		expiring := make([]task.Spec, 700)
		for i := range expiring {
			expiring[i] = task.Spec{Queue: "q", ExpiresIn: time.Minute}
		}
		for range 5 {
			w.enqueue(expiring...)
		}
		want := w.enqueue(task.Spec{Queue: "q"})[0]
		got := w.claim(context.Background(), call("q"), time.Hour)
		synctest.Wait()
		release := w.block(r)
		resumed := make(chan struct{})
		go func() {
			queue(9, false)
			close(resumed)
		}()
		w.pass(2 * time.Minute)
		release()
		<-resumed
		w.pass(time.Second)
		select {
		case tasks := <-got:
			if len(tasks) != 1 || tasks[0].ID != want {
				t.Errorf("the claim got %v, want %s", tasks, want)
			}
		default:
			t.Error("the claim still waits")
		}
	})
}

// A caller that leaves while the round of its call is under way leaves nothing behind either.
func TestCallerLeavesDuringItsRound(t *testing.T) {
	inWorld(t, func(w *world) {
		r, err := w.replica(one)
		w.must(err)
		first := w.block(r)
		ctx, hangUp := context.WithCancel(context.Background())
		watched := make(chan error, 1)
		go func() { watched <- w.Await(ctx, one, call("idle")) }()
		claimed := w.claim(ctx, call("idle"), time.Minute)
		synctest.Wait()
		second := w.block(r)
		first() // both calls run in the round that the second blocks
		synctest.Wait()
		if !r.claims.some() {
			t.Error("the calls have not run")
		}
		hangUp()
		synctest.Wait()
		second()
		if err := <-watched; err == nil || len(<-claimed) > 0 {
			t.Errorf("an idle queue has a task: %v", err)
		}
		w.pass(time.Second)
		if r.claims.some() {
			t.Errorf("%d queues have parked claims", len(r.claims.queues))
		}
	})
}

// A claim that its caller gave up while its call was on the way is not parked.
func TestGoneClaimIsNotParked(t *testing.T) {
	var c waitingClaims
	gone := newWaiter(call("q"))
	if !c.leave(gone) {
		t.Error("a waiter could not leave")
	}
	if c.park(gone); c.some() {
		t.Error("the claim of a caller that left is parked")
	}
	if c.leave(gone) {
		t.Error("a waiter left twice")
	}
}

// Waiters leave from the middle of their lists, and each list with its last one.
func TestWaitersLeave(t *testing.T) {
	var c waitingClaims
	var all []*waiter
	for i := range 6 {
		w := newWaiter(call([]string{"q", "r"}[i%2:]...))
		all = append(all, w)
		c.park(w)
	}
	at := func(name string) (order []uint64) {
		if l := c.queues[queueKey{ns, name}][""]; l != nil {
			for e := l.Front(); e != nil; e = e.Next() {
				order = append(order, e.Value.(*waiter).arrival)
			}
		}
		return order
	}
	c.leave(all[2])
	c.remove(all[1]) // it is served
	if got := fmt.Sprint(at("q"), at("r")); got != "[1 5] [1 4 5 6]" {
		t.Errorf("after the second and the third left, %s wait", got)
	}
	for _, i := range []int{0, 4} {
		c.leave(all[i])
	}
	if len(c.queues) != 1 || c.waits(queueKey{ns, "q"}, "") || !c.waits(queueKey{ns, "r"}, "") {
		t.Errorf("%d queues have waiters: %v", len(c.queues), at("r"))
	}
	c.retryAll()
	for i, w := range all {
		if again := len(w.again) > 0; again != slices.Contains([]int{3, 5}, i) || w.places != nil {
			t.Errorf("waiter %d is to claim again: %t", i, again)
		}
	}
	if c.leave(all[5]); c.some() {
		t.Error("waiters are left")
	}
}

// The types of polls are bounded by their bytes: of a queue, and of all.
func TestPolledTypesAreBounded(t *testing.T) {
	var a polls
	now := store.Time(0).Add(time.Hour)
	a.begin(now)
	note := func(queue, types string, at store.Time) {
		a.note(&waiter{call: engine.ClaimRequest{Namespace: ns, Queues: []engine.Share{{Queue: queue}}}, types: types}, at)
	}
	long := strings.Repeat("x", maxQueueBytes/4-1)
	note("q", "0"+long, now)
	for i := range 3 {
		note("q", fmt.Sprint(i+1)+long, now+1)
	}
	later := now.Add(pollKept) + 1
	if note("q", "4"+long, later); len(a.queues[queueKey{ns, "q"}].byTypes) != 4 {
		t.Errorf("an old poll made room, and %d are recorded", len(a.queues[queueKey{ns, "q"}].byTypes))
	}
	note("q", "5"+long, later)
	if q := a.queues[queueKey{ns, "q"}]; len(q.byTypes) != 1 || q.since != later || a.bytes != maxQueueBytes/4 || q.bytes != a.bytes {
		t.Errorf("beyond the bytes of a queue, %d polls of %d bytes are recorded since %v, %d bytes in all", len(q.byTypes), q.bytes, q.since, a.bytes)
	}
	for i := range maxPolledBytes/(maxQueueBytes/4) - 1 {
		note(fmt.Sprint("full", i), "0"+long, later)
	}
	if a.bytes != maxPolledBytes || a.since != now {
		t.Errorf("%d bytes are recorded since %v", a.bytes, a.since)
	}
	evenLater := later.Add(pollKept) + 1
	note("full0", "0"+long, evenLater)
	if note("new", "0"+long, evenLater); len(a.queues) != 2 || a.bytes != 2*(maxQueueBytes/4) || a.since != now {
		t.Errorf("when old queues made room, %d are recorded, of %d bytes since %v", len(a.queues), a.bytes, a.since)
	}
	for i := range maxPolledBytes/(maxQueueBytes/4) - 1 {
		note(fmt.Sprint("again", i), "0"+long, evenLater)
	}
	if len(a.queues) != 1 || a.bytes != maxQueueBytes/4 || a.since != evenLater {
		t.Errorf("beyond the bytes of all, %d queues are recorded, of %d bytes since %v", len(a.queues), a.bytes, a.since)
	}
}

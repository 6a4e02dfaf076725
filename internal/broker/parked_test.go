package broker

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/task"
)

// Callers that have left leave no parked claim behind, however many types they asked for and however they left.
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
		if r.claims.Some() {
			t.Error("claims are still parked")
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
			w.must(copyQueues(w.t.Context(), w.Broker, one, map[string]task.QueueConfig{"q": {Version: version,
				Settings: task.DefaultSettings(), Paused: paused}}))
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
		if !r.claims.Some() {
			t.Error("the calls have not run")
		}
		hangUp()
		synctest.Wait()
		second()
		if err := <-watched; err == nil || len(<-claimed) > 0 {
			t.Errorf("an idle queue has a task: %v", err)
		}
		w.pass(time.Second)
		if r.claims.Some() {
			t.Error("claims are still parked")
		}
	})
}

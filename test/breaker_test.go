package test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/pawltype"
)

const (
	brokenQueue = "broken"
	brokenHold  = time.Second
	brokenTasks = 40  // of the failing type
	goodTasks   = 300 // of another type in the same queue
)

// TestBreakerThroughCrashes kills the server repeatedly while the tasks of a type fail: its breaker stays open, no more
// than one of them is tried at a time, and no more often than the hold allows; tasks of another type pass. When the
// type works again, all of its tasks run, and none is held any more.
func TestBreakerThroughCrashes(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.start()
	client := s.dial(pawl.DialOptions{RetryFor: startLimit})
	operator := admin.New(client)
	settings := admin.QueueSettings{MaxAttempts: 1000, Lease: 2 * time.Second,
		Breaker:  &admin.Breaker{MinAttempts: 4, FailureRate: 75, Hold: brokenHold, MaxHold: brokenHold, Probes: 2},
		Breakers: map[string]admin.Breaker{"good": {Off: true}}}
	if _, err := operator.Queues().Put(t.Context(), brokenQueue, settings); err != nil {
		t.Fatal(err)
	}
	enqueue := func(typ string, n int) {
		for range n {
			if _, err := client.Enqueue(t.Context(), pawl.RawTask{Type: typ, Payload: []byte("1")}, pawl.Queue(brokenQueue)); err != nil {
				t.Fatal(err)
			}
		}
	}
	enqueue("bad", brokenTasks)
	w := &brokenWork{t: t, claims: claims.New(client), fails: true, done: map[string]map[string]bool{"bad": {}, "good": {}}}
	ctx, stop := context.WithTimeout(t.Context(), startLimit)
	defer stop()
	w.failUntilOpen(ctx, operator)
	enqueue("good", goodTasks)

	began := time.Now()
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() { w.run(ctx) })
	}
	kills := count(t, "PAWL_KILLS", 12) / 2
	for range kills {
		s.killOften(1)
		if q, err := operator.Queues().Get(ctx, brokenQueue); err != nil || q.BreakersOpen != 1 || q.Breakers[0].Type != "bad" ||
			q.Depth.Held == 0 {
			t.Errorf("after a crash the queue is %+v, %v, want one open breaker and held tasks", q, err)
		}
	}
	// Each failed probe is followed by a hold. A claim whose answer was lost in a crash may end while no server runs, without an event.
	if most := int(time.Since(began)/brokenHold)*11/10 + 2 + 4*kills; w.works() > most {
		t.Errorf("in %s %d tasks of the failing type were tried, want at most %d", time.Since(began), w.tried, most)
	}
	workers.Wait()
	if ctx.Err() != nil {
		q, _ := operator.Queues().Get(t.Context(), brokenQueue)
		t.Fatalf("%d and %d tasks are done, the type may be held forever: %+v", len(w.done["bad"]), len(w.done["good"]), q)
	}
	if w.most != 1 {
		t.Errorf("while the breaker was open %d tasks of the type ran at the same time, want 1", w.most)
	}
	q, err := operator.Queues().Get(t.Context(), brokenQueue)
	if err != nil || q.Depth != (admin.Depth{}) || q.BreakersOpen != 0 {
		t.Errorf("at the end the queue has %+v and %d open breakers, %v", q.Depth, q.BreakersOpen, err)
	}
}

// brokenWork is a set of workers for which the tasks of a type fail, until they don't.
type brokenWork struct {
	t      *testing.T
	claims claims.Client

	mu    sync.Mutex
	fails bool
	held  int // claimed tasks of the failing type
	most  int
	tried int
	done  map[string]map[string]bool // by type and task
}

// failUntilOpen makes tasks fail until the breaker is open and none of the type is claimed.
func (w *brokenWork) failUntilOpen(ctx context.Context, operator admin.Client) {
	for {
		got, err := w.claims.Claim(ctx, claims.Request{Queues: pawl.Strict{brokenQueue}, Max: 1, Worker: "w"})
		if err != nil {
			w.t.Fatal(err)
		}
		for _, c := range got {
			if _, err := w.claims.Fail(ctx, c, pawl.RetryIn(10*time.Millisecond, errors.New("broken"))); err != nil {
				w.t.Fatal(err)
			}
		}
		if q, err := operator.Queues().Get(ctx, brokenQueue); err != nil {
			w.t.Fatal(err)
		} else if q.BreakersOpen == 1 && q.Depth.Claimed == 0 {
			return
		}
	}
}

func (w *brokenWork) run(ctx context.Context) {
	for ctx.Err() == nil && !w.all() {
		got, err := w.claims.Claim(ctx, claims.Request{Queues: pawl.Strict{brokenQueue}, Max: 3, Wait: 200 * time.Millisecond, Worker: "w"})
		if err != nil {
			continue // the server is down; what it may have handed out comes back with the lease
		}
		for _, c := range got {
			w.settle(ctx, c, w.begin(c))
		}
	}
}

// begin reports whether the task fails.
func (w *brokenWork) begin(c *pawl.Claim) (fails bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.Type != "bad" || !w.fails {
		return false
	}
	w.tried++
	w.held++
	w.most = max(w.most, w.held)
	return true
}

func (w *brokenWork) settle(ctx context.Context, c *pawl.Claim, fails bool) {
	var err error
	if fails {
		time.Sleep(5 * time.Millisecond)
		w.mu.Lock()
		w.held-- // before the answer can admit the next one
		w.mu.Unlock()
		_, err = w.claims.Fail(ctx, c, pawl.RetryIn(10*time.Millisecond, errors.New("broken")))
	} else if err = w.claims.Ack(ctx, c); err == nil {
		w.mu.Lock()
		w.done[c.Type][c.ID] = true
		w.mu.Unlock()
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, pawltype.ErrStaleClaim) && !errors.Is(err, pawltype.ErrUnavailable) {
		w.t.Errorf("settling a task of type %q: %v", c.Type, err)
	}
}

// works makes the type work from now on. It returns how many tasks were tried before.
func (w *brokenWork) works() (tried int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fails = false
	return w.tried
}

func (w *brokenWork) all() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.done["bad"]) == brokenTasks && len(w.done["good"]) == goodTasks
}

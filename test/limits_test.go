package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/pawltype"
)

const (
	limitedQueue = "limited"
	mostRunning  = 6
	mostOfAKey   = 2
	limitedKeys  = 5
	limitedTasks = 400
)

type limited struct{ N int }

// TaskType implements pawl.Args.
func (limited) TaskType() string { return "limited" }

// TestLimitsThroughCrashes kills the server repeatedly while workers run tasks of a few keys: they never hold more of
// one key, or of all, than the limits allow, and in the end no slot is lost.
func TestLimitsThroughCrashes(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.start()
	client := s.dial(pawl.DialOptions{RetryFor: startLimit})
	settings := admin.QueueSettings{MaxAttempts: 100, Lease: 3 * time.Second, QueueLimits: admin.QueueLimits{MaxRunning: mostRunning},
		PerKey: admin.QueueLimits{MaxRunning: mostOfAKey}}
	if _, err := admin.New(client).Queues().Put(t.Context(), limitedQueue, settings); err != nil {
		t.Fatal(err)
	}
	for n := range limitedTasks {
		if _, err := client.Enqueue(t.Context(), limited{n}, pawl.Queue(limitedQueue),
			pawl.Key(fmt.Sprint("k", n%limitedKeys))); err != nil {
			t.Fatal(err)
		}
	}
	w := &limitedWork{t: t, claims: claims.New(client), held: map[string]int{}, most: map[string]int{}, done: map[int]bool{}}
	ctx, stop := context.WithTimeout(t.Context(), startLimit)
	defer stop()
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() { w.run(ctx) })
	}
	s.killOften(count(t, "PAWL_KILLS", 12) / 2)
	workers.Wait()
	if ctx.Err() != nil {
		t.Fatalf("%d of %d tasks are done, slots may be lost: %v", len(w.done), limitedTasks, w.held)
	}
	if w.most[""] != mostRunning || w.most["k0"] != mostOfAKey {
		t.Errorf("the limits were not reached: at most %v tasks ran at once", w.most)
	}
	q, err := admin.New(client).Queues().Get(t.Context(), limitedQueue)
	if err != nil || q.Depth != (admin.Depth{}) {
		t.Errorf("at the end the queue has %+v, %v", q.Depth, err)
	}
}

// limitedWork is a set of workers with the tasks that they hold together: from the answer to a claim until they begin to return it.
type limitedWork struct {
	t      *testing.T
	claims claims.Client

	mu   sync.Mutex
	held map[string]int // by key; "": all
	most map[string]int
	done map[int]bool
}

func (w *limitedWork) run(ctx context.Context) {
	for ctx.Err() == nil && !w.all() {
		got, err := w.claims.Claim(ctx, claims.Request{Queues: pawl.Strict{limitedQueue}, Max: 1 + rand.IntN(3),
			Wait: 200 * time.Millisecond, Worker: "w"})
		if err != nil {
			continue // the server is down; what it may have handed out comes back with the lease
		}
		for _, c := range got {
			w.hold(c, +1)
		}
		time.Sleep(rand.N(5 * time.Millisecond))
		for _, c := range got {
			w.hold(c, -1)
			w.settle(ctx, c)
		}
	}
}

// settle ends a claim in one of several ways.
func (w *limitedWork) settle(ctx context.Context, c *pawl.Claim) {
	var n limited
	if err := json.Unmarshal(c.Payload, &n); err != nil {
		w.t.Error(err)
	}
	var err error
	switch rand.IntN(6) {
	case 0:
		_, err = w.claims.Release(ctx, c, 0)
	case 1:
		_, err = w.claims.Fail(ctx, c, pawl.RetryIn(10*time.Millisecond, errors.New("by chance")))
	default:
		if err = w.claims.Ack(ctx, c); err == nil {
			w.mu.Lock()
			w.done[n.N] = true
			w.mu.Unlock()
		}
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, pawltype.ErrStaleClaim) && !errors.Is(err, pawltype.ErrUnavailable) {
		w.t.Errorf("task %d: %v", n.N, err)
	}
}

func (w *limitedWork) hold(c *pawl.Claim, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, most := range map[string]int{"": mostRunning, c.Key: mostOfAKey} {
		w.held[key] += n
		w.most[key] = max(w.most[key], w.held[key])
		if w.held[key] > most {
			w.t.Errorf("%d tasks of key %q are held at once, want at most %d", w.held[key], key, most)
		}
	}
}

func (w *limitedWork) all() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.done) == limitedTasks
}

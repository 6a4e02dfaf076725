package test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawlq/pawl"
)

// TestKill kills the only node with -9 again and again under load, also while it starts, and checks the history: nothing
// answered is lost, nobody holds a task twice, no stale holder changes anything. PAWL_KILLS sets how often (make soak).
func TestKill(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes")
	}
	kills := 12
	if v := os.Getenv("PAWL_KILLS"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatal(err)
		}
		kills = n
	}
	s := newServer(t)
	s.start()
	w := newWorkload(t, s.addr)
	var slowest time.Duration
	for range kills {
		time.Sleep(time.Duration(10+rand.IntN(400)) * time.Millisecond)
		s.kill()
		if rand.IntN(4) == 0 { // once more while it starts
			s.launch()
			time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
			s.kill()
		}
		slowest = max(slowest, s.start())
	}
	w.finish()
	final := w.drain()
	for _, finding := range w.history.Check(final) {
		t.Error(finding)
	}
	t.Logf("%d kills, %d calls, %d tasks; %d enqueues without an answer; slowest start %s",
		kills, w.history.Len(), len(final), w.unknown.Load(), slowest)
	if w.acked.Load() < int64(kills) {
		t.Errorf("only %d acks: the load did not run", w.acked.Load())
	}
}

// workload is producers and workers that note all they do.
type workload struct {
	t       *testing.T
	client  *pawl.Client
	history History
	ctx     context.Context
	stop    context.CancelFunc
	clients sync.WaitGroup
	unknown atomic.Int64
	acked   atomic.Int64
}

const (
	producers = 4
	workers   = 4
	testLease = 3 * time.Second
)

func newWorkload(t *testing.T, addr string) *workload {
	client, err := pawl.Dial(addr, pawl.WithRetryFor(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	w := &workload{t: t, client: client}
	w.ctx, w.stop = context.WithCancel(context.Background())
	for p := range producers {
		w.clients.Go(func() { w.produce(p) })
	}
	for n := range workers {
		w.clients.Go(func() { w.work(n) })
	}
	return w
}

// finish stops the load.
func (w *workload) finish() {
	w.stop()
	w.clients.Wait()
}

func (w *workload) produce(p int) {
	for i := 0; w.ctx.Err() == nil; i++ {
		value := fmt.Sprintf(`"%d-%d"`, p, i)
		op := Op{Kind: Enqueue, Value: value, Begin: time.Now()}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		opts := []pawl.Option{pawl.Queue([]string{"a", "b"}[i%2]), pawl.MaxAttempts(20), pawl.Retry(pawl.RetryPolicy{Initial: 50 * time.Millisecond, Factor: 1, Max: time.Second})}
		if i%3 == 0 {
			opts = append(opts, pawl.In(time.Duration(rand.IntN(2000))*time.Millisecond))
		}
		ref, err := w.client.Enqueue(ctx, pawl.RawTask{Type: "job", Payload: []byte(value)}, opts...)
		cancel()
		op.End = time.Now()
		if err != nil {
			op.Unknown = true
			w.unknown.Add(1)
		} else {
			op.Task = ref.ID
		}
		w.history.Add(op)
	}
}

func (w *workload) work(n int) {
	for i := 0; w.ctx.Err() == nil; i++ {
		key := fmt.Sprintf("%d-%d", n, i)
		for _, c := range w.claim(key, time.Second, 1+rand.IntN(8)) {
			w.settle(c)
		}
	}
}

// claim claims some tasks and notes them.
func (w *workload) claim(key string, wait time.Duration, most int) []*pawl.Claim {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	begin := time.Now()
	claims, err := w.client.Claims().Claim(ctx, pawl.ClaimRequest{Queues: pawl.Strict{"a", "b"}, Max: most,
		Lease: testLease, Wait: wait, Worker: "w", Key: key})
	if err != nil {
		return nil // what it may have claimed comes back when the lease ends
	}
	for _, c := range claims {
		w.history.Add(Op{Kind: Claim, Task: c.ID, Value: string(c.Payload), Fence: c.Fence, ClaimKey: key, Begin: begin, End: time.Now(), Lease: c.LeaseExpiresAt})
	}
	return claims
}

// settle ends a claim in one way or another, or forgets it.
func (w *workload) settle(c *pawl.Claim) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	op := Op{Task: c.ID, Fence: c.Fence, Begin: time.Now()}
	var err error
	switch n := rand.IntN(100); {
	case n < 80:
		op.Kind = Ack
		err = w.client.Claims().Ack(ctx, c)
	case n < 90:
		op.Kind = Fail
		_, err = w.client.Claims().Fail(ctx, c, errors.New("by chance"))
	case n < 95:
		op.Kind = Release
		_, err = w.client.Claims().Release(ctx, c, 0)
	default:
		return // vanished
	}
	if op.End = time.Now(); err == nil {
		w.history.Add(op)
		if op.Kind == Ack {
			w.acked.Add(1)
		}
	}
}

// drain runs everything to its end and reads where each task is.
func (w *workload) drain() map[string]Final {
	deadline := time.Now().Add(2 * time.Minute)
	for i := 0; ; i++ {
		final, open := w.dump()
		if open == 0 {
			return final
		}
		if time.Now().After(deadline) {
			w.t.Errorf("%d tasks have not ended", open)
			return final
		}
		for _, c := range w.claim(fmt.Sprintf("drain-%d", i), 500*time.Millisecond, 200) {
			op := Op{Kind: Ack, Task: c.ID, Fence: c.Fence, Begin: time.Now()}
			if err := w.client.Claims().Ack(context.Background(), c); err == nil {
				op.End = time.Now()
				w.history.Add(op)
			}
		}
	}
}

// dump reads all tasks, and counts those that have not ended. While many are open it reads none.
func (w *workload) dump() (final map[string]Final, open int64) {
	for q, err := range w.client.Admin().Queues(context.Background()) {
		if err != nil {
			w.t.Fatal(err)
		}
		open += q.Depth.Scheduled + q.Depth.Ready + q.Depth.Claimed + q.Depth.Retrying
	}
	if open > 0 {
		return nil, open
	}
	final = map[string]Final{}
	cursor := ""
	for {
		page, err := w.client.ListPage(context.Background(), pawl.Filter{}, pawl.PageRequest{Limit: 1000, Cursor: cursor, WithPayload: true})
		if err != nil {
			w.t.Fatal(err)
		}
		for _, task := range page.Items {
			final[task.ID] = Final{Value: string(task.Payload), State: string(task.State), Ended: task.State.Ended(), Fence: task.Fence}
		}
		if cursor = page.NextCursor; cursor == "" {
			return final, 0
		}
	}
}

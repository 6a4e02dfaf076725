package test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawlq/pawl"
)

// workload is producers and workers that note all they do.
type workload struct {
	t       *testing.T
	client  *pawl.Client
	queues  []string
	history History
	ctx     context.Context
	stop    context.CancelFunc
	clients sync.WaitGroup

	accepted, unknown atomic.Int64 // enqueues with an answer, and without
	acked             atomic.Int64
}

const (
	producers = 4
	workers   = 4
	testLease = 2 * time.Second
)

func newWorkload(t *testing.T, addr string, queues ...string) *workload {
	client, err := pawl.Dial(addr, pawl.WithRetryFor(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	w := &workload{t: t, client: client, queues: queues}
	w.ctx, w.stop = context.WithCancel(context.Background())
	for p := range producers {
		w.clients.Go(func() { w.produce(p) })
	}
	for n := range workers {
		w.clients.Go(func() { w.work(n) })
	}
	t.Cleanup(w.finish)
	return w
}

// finish stops the load.
func (w *workload) finish() {
	w.stop()
	w.clients.Wait()
}

// flow waits until calls of the load that begin from now on have been answered: w.accepted for enqueues, w.acked for
// acks.
func (w *workload) flow(what *atomic.Int64) {
	w.t.Helper()
	// What is under way now may be counted in a moment: at most one call of each client.
	enough := what.Load() + producers + workers + 20
	eventually(w.t, "the load gets answers", startLimit, func() bool { return what.Load() > enough })
}

// check runs everything to its end, compares the history with what is there, and gives what is there.
func (w *workload) check() map[string]Final {
	w.t.Helper()
	final := w.drain()
	for _, finding := range w.history.Check(final) {
		w.t.Error(finding)
	}
	return final
}

func (w *workload) produce(p int) {
	for i := 0; w.ctx.Err() == nil; i++ {
		value := fmt.Sprintf(`"%d-%d"`, p, i)
		opts := []pawl.Option{pawl.Queue(w.queues[i%len(w.queues)])}
		if i%3 == 0 {
			opts = append(opts, pawl.In(time.Duration(rand.IntN(2000))*time.Millisecond))
		}
		w.enqueue(value, opts...)
	}
}

// retries are soon, so that a failure does not hold up the end of a test.
var retries = []pawl.Option{pawl.MaxAttempts(20), pawl.Retry(pawl.RetryPolicy{Initial: 50 * time.Millisecond, Factor: 1, Max: time.Second})}

// enqueue gives a task to the broker and notes it. The task is "" if there was no answer.
func (w *workload) enqueue(value string, opts ...pawl.Option) (task string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	op := Op{Kind: Enqueue, Value: value, Begin: time.Now()}
	ref, err := w.client.Enqueue(ctx, pawl.RawTask{Type: "job", Payload: []byte(value)}, append(opts, retries...)...)
	op.End = time.Now()
	if err != nil {
		op.Unknown = true
		w.unknown.Add(1)
	} else {
		op.Task = ref.ID
	}
	w.history.Add(op)
	if err == nil {
		w.accepted.Add(1)
	}
	return op.Task
}

// backlog enqueues n tasks at once and notes them.
func (w *workload) backlog(queue string, n int) {
	w.t.Helper()
	items, ops := make([]pawl.Item, n), make([]Op, n)
	for i := range items {
		ops[i] = Op{Kind: Enqueue, Value: fmt.Sprintf(`"%s-%d"`, queue, i), Begin: time.Now()}
		items[i] = pawl.Item{Args: pawl.RawTask{Type: "job", Payload: []byte(ops[i].Value)}, Options: append(slices.Clone(retries), pawl.Queue(queue))}
	}
	answers, err := w.client.EnqueueBatch(context.Background(), items)
	if err != nil {
		w.t.Fatal(err)
	}
	for i, a := range answers {
		if a.Err != nil {
			w.t.Fatal(a.Err)
		}
		ops[i].Task, ops[i].End = a.Ref.ID, time.Now()
		w.history.Add(ops[i])
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
	claims, err := w.client.Claims().Claim(ctx, pawl.ClaimRequest{Queues: w.order(), Max: most,
		Lease: testLease, Wait: wait, Worker: "w", Key: key})
	if err != nil {
		return nil // what it may have claimed comes back when the lease ends
	}
	for _, c := range claims {
		w.history.Add(Op{Kind: Claim, Task: c.ID, Value: string(c.Payload), Fence: c.Fence, ClaimKey: key, Begin: begin, End: time.Now(), Lease: c.LeaseExpiresAt})
	}
	return claims
}

// order is that in which queues are claimed from: now one way and now another, so that none starves.
func (w *workload) order() pawl.Strict {
	queues := slices.Clone(w.queues)
	rand.Shuffle(len(queues), func(i, j int) { queues[i], queues[j] = queues[j], queues[i] })
	return queues
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
		claims := w.claim(fmt.Sprintf("drain-%d", i), 500*time.Millisecond, 500)
		items := make([]pawl.Settlement, len(claims))
		for i, c := range claims {
			items[i].Claim = c
		}
		begin := time.Now()
		settled, _ := w.client.Claims().SettleAll(context.Background(), items) // those without an answer come back
		for i, s := range settled {
			if c := claims[i]; s.Err == nil {
				w.history.Add(Op{Kind: Ack, Task: c.ID, Fence: c.Fence, Begin: begin, End: time.Now()})
			}
		}
	}
}

// dump reads all tasks of the workload's queues, and counts those that have not ended. While many are open it reads
// none.
func (w *workload) dump() (final map[string]Final, open int64) {
	for q, err := range w.client.Admin().Queues(context.Background()) {
		if err != nil {
			w.t.Fatal(err)
		}
		if slices.Contains(w.queues, q.Name) {
			open += q.Depth.Scheduled + q.Depth.Ready + q.Depth.Claimed + q.Depth.Retrying
		}
	}
	if open > 0 {
		return nil, open
	}
	final = map[string]Final{}
	for _, queue := range w.queues {
		for page := (pawl.PageRequest{Limit: 1000, WithPayload: true}); ; {
			tasks, err := w.client.ListPage(context.Background(), pawl.Filter{Queue: queue}, page)
			if err != nil {
				w.t.Fatal(err)
			}
			for _, task := range tasks.Items {
				final[task.ID] = Final{Value: string(task.Payload), State: string(task.State), Ended: task.State.Ended(), Fence: task.Fence}
			}
			if page.Cursor = tasks.NextCursor; page.Cursor == "" {
				break
			}
		}
	}
	return final, 0
}

// largeTasks are n tasks of 64 KiB.
func largeTasks(n int) []pawl.Item {
	items := make([]pawl.Item, n)
	for i := range items {
		items[i] = pawl.Item{Args: pawl.RawTask{Type: "large", Payload: make([]byte, 64<<10), ContentType: "application/octet-stream"},
			Options: []pawl.Option{pawl.Queue("large")}}
	}
	return items
}

package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/pawltype"
)

const (
	quotaBacklog = 30
	quotaBytes   = 25 * quotaSize // so that either is reached first
	quotaSize    = 100
	quotaRunning = 5
)

// Whichever leaders die, and while a shard has none: a namespace's unfinished tasks, their bytes and its running tasks never exceed
// its quotas, over two shards together; what was accepted ends, and then the whole quota is available again.
func TestQuotasSurviveElections(t *testing.T) {
	bySameGoroutines(t, "TestOperationsSurviveElections")
	synctest.Test(t, func(t *testing.T) {
		w := newTwoShards(t)
		q := &quotaTest{twoShards: w}
		settings := admin.QueueSettings{MaxAttempts: 1000, Lease: someLease, Retry: pawltype.RetryPolicy{Initial: time.Second,
			Max: time.Second}}
		w.place("one", settings, 1)
		w.place("two", settings, 2)
		w.place("both", settings, 1, 2)
		q.set(quotaBacklog, quotaBytes, quotaRunning)
		ctx, stop := context.WithCancel(t.Context())
		var workers, producers sync.WaitGroup
		producing, enough := context.WithCancel(ctx)
		for i, queue := range []string{"one", "two", "both", "both"} {
			producers.Go(func() { q.produce(producing, queue, 1+i) })
			workers.Go(func() { q.work(ctx, queue) })
			workers.Go(func() { q.work(ctx, queue) })
		}
		pass(10 * time.Second)
		w.loseShard2()
		pass(2 * someLease)
		w.healShard2()
		for _, shard := range []uint32{2, 0, 1} {
			pass(2 * time.Second)
			w.crashLeader(shard, func() {})
			w.until("three voters each", w.replicated(3))
		}
		enough()
		producers.Wait()
		for _, queue := range []string{"one", "two", "both"} {
			w.inTheEnd("all tasks have ended", w.ended(queue))
		}
		stop()
		workers.Wait()
		q.held()
		w.sound()
		q.allOfIt()
	})
}

type quotaTest struct {
	*twoShards
	accepted, refused atomic.Int64
}

func (q *quotaTest) set(backlog, bytes, running int64) {
	q.t.Helper()
	q.within(time.Minute, time.Second, "the quotas are set", func() error {
		_, err := admin.New(q.client).Namespaces().SetQuotas(q.t.Context(), "default", admin.QuotaChange{MaxBacklog: &backlog,
			MaxBacklogBytes: &bytes, MaxRunning: &running})
		return err
	})
}

// produce enqueues as much as it may.
func (q *quotaTest) produce(ctx context.Context, queue string, step int) {
	for n := 0; ctx.Err() == nil; n++ {
		size := quotaSize
		if n%2 == 0 {
			size = 1
		}
		_, err := q.client.Enqueue(ctx, pawl.RawTask{Type: "t", Payload: make([]byte, size), ContentType: "application/octet-stream"},
			pawl.Queue(queue))
		switch {
		case err == nil:
			q.accepted.Add(1)
		case errors.Is(err, pawltype.ErrQueueFull):
			q.refused.Add(1)
			pass(time.Duration(step) * 500 * time.Millisecond)
		case ctx.Err() == nil:
			q.t.Errorf("enqueue: %v", err)
			return
		}
	}
}

// work runs tasks of a queue: most succeed, some fail once, some lose their lease once.
func (q *quotaTest) work(ctx context.Context, queue string) {
	for n := 0; ctx.Err() == nil; n++ {
		got, err := claims.New(q.client).Claim(ctx, claims.Request{Queues: pawl.Strict{queue}, Max: 2, Wait: 5 * time.Second, Worker: "w"})
		if err != nil && ctx.Err() == nil {
			q.t.Errorf("claim from %q: %v", queue, err)
			return
		}
		pass(700 * time.Millisecond)
		for i, c := range got {
			var err error
			switch how := (n + i) % 7; {
			case how == 1 && c.Fence == 1:
				_, err = claims.New(q.client).Fail(q.t.Context(), c, errors.New("by plan"))
			case how == 2 && c.Fence == 1:
			default:
				err = claims.New(q.client).Ack(q.t.Context(), c)
			}
			if err != nil && !errors.Is(err, pawltype.ErrStaleClaim) {
				q.t.Errorf("task %s of queue %q: %v", c.ID, queue, err)
			}
		}
	}
}

// held checks the quotas by what the tasks report.
func (q *quotaTest) held() {
	q.t.Helper()
	var lives, running []span
	for _, queue := range []string{"one", "two", "both"} {
		for _, info := range q.tasks(queue) {
			lives = append(lives, span{info.CreatedAt, info.EndedAt})
			running = append(running, claimSpans(info)...)
		}
	}
	if n := mostAtOnce(lives); n > quotaBacklog || n < quotaBacklog*2/3 {
		q.t.Errorf("at most %d tasks had not ended, %d may be", n, quotaBacklog)
	}
	if n := mostAtOnce(running); n > quotaRunning || n < quotaRunning {
		q.t.Errorf("at most %d tasks ran, %d may", n, quotaRunning)
	}
	if int64(len(lives)) < q.accepted.Load() || q.accepted.Load() < 100 || q.refused.Load() < 100 {
		q.t.Errorf("%d tasks are there, %d were accepted, %d refused", len(lives), q.accepted.Load(), q.refused.Load())
	}
	q.t.Logf("%d accepted, %d refused, at most %d at once, %d running", q.accepted.Load(), q.refused.Load(), mostAtOnce(lives),
		mostAtOnce(running))
}

// allOfIt uses the whole quota from one queue: the other shard's share moves to it.
func (q *quotaTest) allOfIt() {
	q.t.Helper()
	taken := 0
	q.within(time.Minute, time.Second, "one queue may use all", func() error {
		for {
			_, err := q.client.Enqueue(q.t.Context(), pawl.RawTask{Type: "t", Payload: []byte("1")}, pawl.Queue("one"))
			if err != nil {
				break
			}
			taken++
		}
		n, err := admin.New(q.client).Namespaces().Get(q.t.Context(), "default")
		if err == nil && (n.Usage == nil || n.Usage.Backlog != int64(taken) || taken != quotaBacklog) {
			err = fmt.Errorf("%d were let in, the namespace has %+v", taken, n.Usage)
		}
		return err
	})
}

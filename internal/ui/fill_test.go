package ui_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/pawltype"
)

// fill adds to seed the state of a busy cluster on a bad day: ten queues, 50,000 tasks in all states, an open breaker,
// running chains and groups, workers with streams, and one that showLost shows as lost.
func (w *world) fill(t testing.TB) {
	t.Helper()
	w.lose(t)
	w.seed(t)
	_, err := admin.New(w.client).Queues().Put(t.Context(), "thumbnails", admin.QueueSettings{Breaker: &admin.Breaker{MinAttempts: 20,
		Window: time.Minute, Hold: 30 * time.Minute}})
	must(t, err)
	w.many(t, 24_000, func(i int) pawl.Item {
		return job([]string{"push.send", "push.badge", "push.silent"}[i%3], fmt.Sprintf(`{"device":"d-%d","badge":%d}`, i, i%7),
			pawl.Queue("push"), pawl.MaxAttempts(1+i%2), pawl.Tags("mobile"))
	})
	w.finish(t, "push", 20_600, func(c *pawl.Claim, i int) error {
		switch {
		case i%9 == 0:
			return fmt.Errorf("apns: device token d-%d is no longer active", i)
		case i%131 == 0:
			return pawl.Poison(errors.New(`payload: "badge" is not a number`))
		case i%57 == 0:
			return fmt.Errorf("fcm: 503 Service Unavailable, retry after %d s", i%60)
		}
		return nil
	})
	w.many(t, 12_000, func(i int) pawl.Item {
		return job("document.index", fmt.Sprintf(`{"document":"doc-%d"}`, i), pawl.Queue("search"),
			pawl.Key(fmt.Sprintf("tenant-%d", i%40)), pawl.Priority([]pawltype.Priority{"high", "normal", "normal", "low"}[i%4]))
	})
	w.finish(t, "search", 3_000, func(*pawl.Claim, int) error { return nil })
	w.many(t, 6_000, func(i int) pawl.Item {
		return job("feed.import", fmt.Sprintf(`{"feed":%d}`, i), pawl.Queue("imports"), pawl.In(time.Duration(1+i)*30*time.Second))
	})
	w.many(t, 3_200, func(i int) pawl.Item {
		return job("thumbnail.make", fmt.Sprintf(`{"image":"img-%d.png"}`, i), pawl.Queue("thumbnails"))
	})
	w.finish(t, "thumbnails", 400, func(_ *pawl.Claim, i int) error {
		return fmt.Errorf("vips: out of memory after %d MiB", 512+i%3)
	})
	w.many(t, 1_400, func(i int) pawl.Item {
		return job("order.export", fmt.Sprintf(`{"order":%d}`, 90_000+i), pawl.Queue("exports"),
			pawl.Then(pawl.RawTask{Type: "order.upload", Payload: []byte(`{"bucket":"exports"}`)}, pawl.Queue("exports"),
				pawl.Then(pawl.RawTask{Type: "order.notify", Payload: []byte(`{}`)}, pawl.Queue("mail"))))
	})
	w.finish(t, "exports", 500, func(c *pawl.Claim, i int) error {
		c.SetRawResult("application/json", fmt.Appendf(nil, `{"rows":%d,"file":"export-%d.csv"}`, 200+i, i))
		return nil
	})
	w.mend(t)
	w.connect(t)
}

// many enqueues n tasks in calls of 1,000.
func (w *world) many(t testing.TB, n int, item func(i int) pawl.Item) {
	t.Helper()
	const batch = 1000
	for from := 0; from < n; from += batch {
		w.enqueue(t, min(batch, n-from), func(i int) pawl.Item { return item(from + i) })
	}
}

// finish runs n tasks of a queue, unless its breakers and limits hold them back.
func (w *world) finish(t testing.TB, queue string, n int, outcome func(c *pawl.Claim, i int) error) {
	t.Helper()
	for done := 0; done < n; {
		claimed, err := claims.New(w.client).Claim(t.Context(), claims.Request{Queues: pawl.Strict{queue}, Max: min(100, n-done),
			Worker: fmt.Sprintf("%s-%d.fra/1", queue, done/100%4)})
		must(t, err)
		if len(claimed) == 0 {
			return
		}
		ends := make([]claims.Settlement, len(claimed))
		for i, c := range claimed {
			ends[i] = claims.Settlement{Claim: c, Err: outcome(c, done+i)}
		}
		_, err = claims.New(w.client).SettleAll(t.Context(), ends)
		must(t, err)
		done += len(claimed)
	}
}

// mend does what an operator would: it cancels and discards some tasks, and starts an operation that replays dead letters slowly.
func (w *world) mend(t testing.TB) {
	t.Helper()
	operator := admin.New(w.client).WithActor("bob")
	for _, spec := range []admin.OperationSpec{
		{Action: admin.ActionCancel, Filter: &admin.Filter{Queue: "search", Key: "tenant-3"}},
		{Action: admin.ActionDiscard, Filter: &admin.Filter{Queue: "push", Type: "push.badge",
			States: []pawltype.State{pawltype.StateDead}},
			Max: 300},
	} {
		o, err := operator.WithReason("the tenant has left").Operations().Start(t.Context(), spec)
		must(t, err)
		_, err = operator.Operations().Wait(t.Context(), o.ID, nil)
		must(t, err)
	}
	_, err := operator.WithReason("the certificate was renewed").Operations().Start(t.Context(),
		admin.OperationSpec{Action: admin.ActionReplay, Filter: &admin.Filter{Queue: "push",
			States: []pawltype.State{pawltype.StateDead}, Error: "apns"}, Rate: 5})
	must(t, err)
}

// connect starts workers with streams that hold the tasks that they get until the test ends.
func (w *world) connect(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 3)
	for i, name := range []string{"indexer-1.fra/2201", "indexer-2.ams/871", "thumbs-1.fra/3310"} {
		mux := pawl.NewMux()
		for _, typ := range []string{"document.index", "thumbnail.make"} {
			mux.HandleFunc(typ, func(ctx context.Context, _ *pawl.Claim) error { <-ctx.Done(); return ctx.Err() })
		}
		worker := pawl.NewWorker(w.client, mux, pawl.WorkerConfig{Queues: pawl.Weighted{"search": 3, "thumbnails": 1}, Concurrency: 8 + 4*i,
			Name: name, DrainTimeout: -1, Logger: slog.New(slog.DiscardHandler)})
		go func() { ended <- worker.Run(ctx) }()
	}
	t.Cleanup(func() {
		cancel()
		for range cap(ended) {
			<-ended
		}
	})
}

// lose makes a worker claim a task and never call again.
func (w *world) lose(t testing.TB) {
	t.Helper()
	w.enqueue(t, 3, func(i int) pawl.Item {
		return job("thumbnail.make", fmt.Sprintf(`{"image":"lost-%d.png"}`, i), pawl.Queue("thumbnails"))
	})
	_, err := claims.New(w.client).Claim(t.Context(), claims.Request{Queues: pawl.Strict{"thumbnails"}, Max: 3, Lease: time.Second,
		Worker: "thumbs-2.fra/1207"})
	must(t, err)
}

// showLost waits until a page shows that the worker of lose is lost, some 20 s after its lease ends. The page refreshes
// itself, and its clock is fast.
func (w *world) showLost(b *browser) {
	undo := b.inject(hurry)
	defer undo()
	b.visit(w.url + "/workers?lost=true")
	b.until(`document.querySelector("#live").textContent.includes("thumbs-2.fra/1207")`)
}

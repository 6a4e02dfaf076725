package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/pawltype"
)

// startWorker runs a worker whose handlers take the given time for each task, until stop is called or the test ends.
func startWorker(t *testing.T, c *pawl.Client, cfg pawl.WorkerConfig, each time.Duration, types ...string) (stop func()) {
	t.Helper()
	mux := pawl.NewMux()
	for _, typ := range types {
		mux.HandleFunc(typ, func(ctx context.Context, _ *pawl.Claim) error {
			select {
			case <-ctx.Done():
			case <-time.After(each):
			}
			return ctx.Err()
		})
	}
	cfg.Logger, cfg.DrainTimeout = slog.New(slog.DiscardHandler), -1
	ctx, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := pawl.NewWorker(c, mux, cfg).Run(ctx); err != nil {
			t.Logf("worker %q: %v", cfg.Name, err) // its node may have crashed
		}
	}()
	stop = func() { end(); <-done }
	t.Cleanup(stop)
	return stop
}

func codesOf(reasons []admin.Reason) (codes []admin.ReasonCode) {
	for _, r := range reasons {
		codes = append(codes, r.Code)
	}
	return codes
}

// saysOfWorkers returns the code in an explanation that is about workers; "": there is none.
func saysOfWorkers(reasons []admin.Reason) admin.ReasonCode {
	for _, r := range reasons {
		switch r.Code {
		case admin.ReasonNoWorker, admin.ReasonNoWorkerForType, admin.ReasonWorkersUnknown, admin.ReasonWorkersBusy, admin.ReasonNext:
			return r.Code
		}
	}
	return ""
}

// agree compares everything that a node reports of the workers of a queue with ready tasks, one of which is named, with the truth.
// Pages are the metrics of all nodes.
func agree(t *testing.T, what, node string, c *pawl.Client, queue, id string, code admin.ReasonCode, pages string) {
	t.Helper()
	e, err := admin.New(c).Tasks().Explain(t.Context(), id)
	if err != nil {
		t.Fatalf("%s, at %s: %v", what, node, err)
	}
	if got := saysOfWorkers(e.Reasons); got != code {
		t.Errorf("%s, at %s: the task is explained by %v, want %s: %+v", what, node, codesOf(e.Reasons), code, e.Reasons)
	}
	q, err := admin.New(c).Queues().Explain(t.Context(), queue)
	if err != nil {
		t.Fatalf("%s, at %s: %v", what, node, err)
	}
	if got := saysOfWorkers(q.Reasons); got != code && !(code == admin.ReasonNext && got == "") {
		t.Errorf("%s, at %s: queue %s is explained by %v, want %s", what, node, queue, codesOf(q.Reasons), code)
	}
	alarm := code == admin.ReasonNoWorker || code == admin.ReasonNoWorkerForType
	s, err := admin.New(c).Stats(t.Context(), 0)
	if err != nil {
		t.Fatalf("%s, at %s: %v", what, node, err)
	}
	if raised := slices.ContainsFunc(s.Attention, func(a admin.Attention) bool {
		return a.Kind == "no_worker" && (a.Subject == queue ||
			a.More > 0)
	}); raised != alarm {
		t.Errorf("%s, at %s: stats raises no_worker of %s: %t, want %t", what, node, queue, raised, alarm)
	}
	list, err := admin.New(c).Queues().ListPage(t.Context(), admin.QueueFilter{Having: admin.QueueNoWorker}, pawltype.PageRequest{})
	if err != nil {
		t.Fatalf("%s, at %s: %v", what, node, err)
	}
	if listed := slices.ContainsFunc(list.Items, func(i *admin.Queue) bool { return i.Name == queue }); listed !=
		(code == admin.ReasonNoWorker) {
		t.Errorf("%s, at %s: %s is listed as without workers: %t, but %s", what, node, queue, listed, code)
	}
	if alerts := strings.Contains(pages, fmt.Sprintf(`pawl_blocked_tasks{namespace="default",queue=%q,reason="no_worker`,
		queue)); alerts != alarm {
		t.Errorf("%s, at %s: the metrics have no_worker of %s: %t, want %t", what, node, queue, alerts, alarm)
	}
	scale, err := admin.New(c).Queues().Scale(t.Context(), queue, time.Minute, 10)
	if err != nil || !scale.Active || scale.Backlog == 0 {
		t.Errorf("%s, at %s: the scaler says %+v (%v)", what, node, scale, err)
	}
}

// A worker whose slots are all taken by the tasks of one queue serves the other queues too: their tasks wait for it, in whichever
// shards they are, for however long.
func TestBusyWorkerCountsForItsOtherQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{InMemory: true, DataShards: 4})
		c := s.client()
		queues := pawl.Strict{"aa", "bb", "cc", "dd", "ee"}
		last, shards := map[string]string{}, map[uint32]bool{}
		for _, queue := range queues {
			for range 300 {
				id, shard := enqueue(t, c, queue)
				last[queue], shards[shard] = id, true
			}
		}
		if len(shards) < 2 {
			t.Fatalf("the queues lie in shards %v, want several", shards)
		}
		stop := startWorker(t, c, pawl.WorkerConfig{Queues: queues, Concurrency: 2}, 10*time.Second, "job")
		for range 4 {
			pass(2 * time.Minute)
			pages := scrape(t, s)
			for _, queue := range queues {
				agree(t, "the worker is busy", "n1", c, queue, last[queue], admin.ReasonWorkersBusy, pages)
			}
		}
		stop()
		pass(10 * time.Second)
		pages := scrape(t, s)
		for _, queue := range queues {
			agree(t, "the worker has gone", "n1", c, queue, last[queue], admin.ReasonNoWorker, pages)
		}
	})
}

// Whatever the workers of a queue do, and whichever node they are connected to, all nodes report the same of it, and the truth. The
// queue is in two shards.
func TestWorkersOfOtherNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.form()
		w.addShard()
		c := w.anyone()
		if _, err := admin.New(c).Queues().Put(t.Context(), "hot", admin.QueueSettings{}); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.New(c).Queues().Spread(t.Context(), "hot", admin.SpreadOptions{Parts: 2}); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		add := func(queue, typ string, n int) (last string) {
			t.Helper()
			for i := range n {
				ref, err := c.Enqueue(t.Context(), pawl.RawTask{Type: typ}, pawl.Queue(queue), pawl.Key(fmt.Sprint("k", i)))
				if err != nil {
					t.Fatal(err)
				}
				last = ref.ID
			}
			return last
		}
		last := add("hot", "job", 40)
		all := func(what string, code admin.ReasonCode) {
			t.Helper()
			pass(6 * time.Second) // the queues' figures may be 5 s old
			pages := ""
			for _, s := range w.nodes {
				if !s.crashed.Load() {
					pages += scrape(t, s)
				}
			}
			for name, s := range w.nodes {
				if !s.crashed.Load() {
					agree(t, what, name, s.client(), "hot", last, code, pages)
				}
			}
		}
		all("nobody is there", admin.ReasonNoWorker)

		add("first", "job", 60)
		at := w.nodes["n2"].client()
		stop := startWorker(t, at, pawl.WorkerConfig{Name: "w1", Queues: pawl.Strict{"first", "hot"}, Concurrency: 2}, time.Minute, "job")
		all("a worker is busy with another queue", admin.ReasonWorkersBusy)
		if !testing.Short() { // three nodes take 10 s of CPU for it under the race detector
			pass(7 * time.Minute)
			all("for long", admin.ReasonWorkersBusy)
		}

		id := workerNamed(t, c, "w1")
		if _, err := admin.New(c).WithReason("deploy").Workers().Quiet(t.Context(), id, time.Hour); err != nil {
			t.Fatal(err)
		}
		all("it is quiet", admin.ReasonNoWorker)
		e, err := admin.New(c).Tasks().Explain(t.Context(), last)
		if err != nil || !strings.Contains(e.Reasons[0].Detail+e.Reasons[0].Change, `quiet ("w1")`) ||
			!strings.Contains(e.Reasons[0].Change,
				"pawl worker resume "+id) {
			t.Errorf("of a quiet worker is told %+v (%v)", e, err)
		}
		if _, err := admin.New(c).Workers().Resume(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		all("it works again", admin.ReasonWorkersBusy)
		stop()
		all("it has gone", admin.ReasonNoWorker)

		stop = startWorker(t, w.nodes["n3"].client(), pawl.WorkerConfig{Name: "w2", Queues: pawl.Strict{"hot"}, Concurrency: 2},
			time.Minute, "other")
		all("one takes other types", admin.ReasonNoWorkerForType)
		stop()

		if _, err := claims.New(at).Claim(t.Context(), claims.Request{Queues: pawl.Strict{"first", "hot"}, Max: 1, Worker: "w3",
			Lease: 12 * time.Hour}); err != nil {
			t.Fatal(err)
		}
		all("one claims by single calls, and got a task of another queue", admin.ReasonWorkersBusy)
		pass(5 * time.Minute)
		all("it does not come back", admin.ReasonNoWorker)

		startWorker(t, w.nodes["n3"].client(), pawl.WorkerConfig{Name: "w4", Queues: pawl.Strict{"first", "hot"}, Concurrency: 1},
			time.Hour, "job")
		all("one at another node is busy", admin.ReasonWorkersBusy)
		w.crash("n3")
		w.until("two nodes lead all shards", func() error {
			for _, shard := range []uint32{0, 1, 2} {
				if leader := w.leaderOf(shard); leader == "" || leader == "n3" {
					return errors.New("not yet")
				}
			}
			return nil
		})
		e, err = admin.New(w.nodes["n1"].client()).Tasks().Explain(t.Context(), last)
		if err != nil || saysOfWorkers(e.Reasons) != admin.ReasonWorkersUnknown {
			t.Errorf("its node gives no answer: %+v (%v)", e, err)
		}
		pass(20 * time.Second)
		all("its node is away", admin.ReasonNoWorker)
		e, err = admin.New(w.nodes["n1"].client()).Tasks().Explain(t.Context(), last)
		if err != nil || !strings.Contains(e.Reasons[0].Detail, "node n3 is away") {
			t.Errorf("its node is away: %+v (%v)", e, err)
		}
		// A list names the missing node, and still has the workers of the others.
		startWorker(t, w.nodes["n2"].client(), pawl.WorkerConfig{Name: "w5", Queues: pawl.Strict{"other"}, Concurrency: 1},
			time.Minute, "job")
		pass(time.Second)
		for _, name := range []string{"n1", "n2"} {
			list, err := admin.New(w.nodes[name].client()).Workers().ListPage(t.Context(), admin.WorkerFilter{}, pawltype.PageRequest{})
			if err != nil {
				t.Fatal(err)
			}
			there := map[string]bool{}
			for _, worker := range list.Items {
				there[worker.Name] = worker.LostAt.IsZero()
			}
			if len(list.Missing) != 1 || list.Missing[0].Node != "n3" || there["w4"] || !there["w5"] {
				t.Errorf("at %s: missing are %v, and of the workers are there %v", name, list.Missing, there)
			}
		}
	})
}

// workerNamed returns the id of a worker.
func workerNamed(t *testing.T, c *pawl.Client, name string) string {
	t.Helper()
	for w, err := range admin.New(c).Workers().List(t.Context(), admin.WorkerFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if w.Name == name {
			return w.ID
		}
	}
	t.Fatalf("no worker is called %q", name)
	return ""
}

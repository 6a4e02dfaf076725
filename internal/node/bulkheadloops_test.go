package node

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/internal/broker"
)

// trio is the shards that a loop's row is about: two that are well, and one that is away.
type trio struct {
	*ship
	here, there, away site
	client            *pawl.Client
}

// loopRow is work that goes on by itself, which must go on for the shards that are well. before is done before the fault, begin after it;
// the condition that begin returns must come true within limit.
type loopRow struct {
	name   string
	needs  string
	limit  time.Duration
	before func(w *trio)
	begin  func(w *trio) func() bool
}

func (w *trio) has(queue string) bool {
	out, err := w.call(w.t.Context(), "WorkerService/Claim", `{"queues":[{"queue":"`+queue+`"}],"max":1,"worker":"w"}`)
	return err == nil && out.Get(out.Descriptor().Fields().ByJSONName("tasks")).List().Len() > 0
}

func (w *trio) put(queue, more string) {
	w.must("ProducerService/Enqueue", `{"task":{"type":"job","queue":"`+queue+`"`+more+`}}`)
}

func (w *trio) later(fn func() bool) func() bool {
	var done atomic.Bool
	go func() { done.Store(fn()) }()
	return done.Load
}

var loopRows = []loopRow{
	{name: "outbox: members of groups", begin: func(w *trio) func() bool {
		for _, to := range []site{w.away, w.there} {
			go func() {
				tasks := `[{"type":"job","queue":"` + w.here["c"][0] + `"},{"type":"job","queue":"` + to["c"][0] + `"}]`
				_, _ = w.call(w.t.Context(), "GroupService/CreateGroup", `{"tasks":`+tasks+`}`)
			}()
			time.Sleep(10 * time.Millisecond)
		}
		return func() bool { return w.has(w.there["c"][0]) }
	}},
	{name: "deadlines", begin: func(w *trio) func() bool {
		w.put(w.here["d"][0], `,"delay":"0.5s"`)
		return func() bool { return w.has(w.here["d"][0]) }
	}},
	{name: "schedules", limit: 2 * time.Second, before: func(w *trio) {
		for name, at := range map[string]site{"t1": w.here, "t2": w.away} {
			w.must("ScheduleService/PutSchedule", `{"spec":{"name":"`+name+`","every":"1s","task":{"type":"job","queue":"`+at["e"][0]+`"}}}`)
		}
	}, begin: func(w *trio) func() bool {
		for w.has(w.here["e"][0]) {
		}
		return func() bool { return w.has(w.here["e"][0]) }
	}},
	{name: "webhooks: thresholds", needs: "s", limit: 12 * time.Second, before: func(w *trio) {
		w.must("WebhookService/AddWebhook",
			`{"name":"deep","url":"http://192.0.2.1/deep","events":["queue.over"],"queues":["`+w.here["g"][0]+`"],"depthOver":"3"}`)
	}, begin: func(w *trio) func() bool {
		for range 5 {
			w.put(w.here["g"][0], "")
		}
		return func() bool { got, _ := w.hooks.received("/deep", "queue.over"); return len(got) > 0 }
	}},
	{name: "copies of queues", needs: "s", begin: func(w *trio) func() bool {
		go func() { _, _ = w.call(w.t.Context(), "OperatorService/PauseQueue", `{"queue":"spread"}`) }()
		return func() bool {
			for _, at := range []site{w.here, w.there} {
				on := broker.OnQueue{OnShard: broker.OnShard{Shard: shardNumber(at["shard"][0]), Namespace: "default"}, Queue: "spread"}
				e, err := broker.DescribeQueue.Call(w.t.Context(), w.router, on)
				if err != nil || e.Info.Held == 0 {
					return false
				}
			}
			return true
		}
	}},
	{name: "claims that wait", begin: func(w *trio) func() bool {
		done := w.later(func() bool {
			queues := `[{"queue":"` + w.away["i"][0] + `"},{"queue":"` + w.here["i"][0] + `"}]`
			out, err := w.call(w.t.Context(), "WorkerService/Claim", `{"queues":`+queues+`,"max":1,"worker":"w","wait":"20s"}`)
			return err == nil && out.Get(out.Descriptor().Fields().ByJSONName("tasks")).List().Len() > 0
		})
		time.Sleep(3 * time.Second)
		w.put(w.here["i"][0], "")
		return done
	}},
	{name: "probes", begin: func(w *trio) func() bool {
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return w.pipe.DialContext(ctx) }
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}}
		return w.later(func() bool {
			for _, path := range []string{"/healthz", "/readyz"} {
				r, err := client.Get("http://localhost" + path)
				if err != nil {
					w.t.Error(err)
					return false
				}
				_ = r.Body.Close()
			}
			return true
		})
	}},
	{name: "SDK: a worker", before: func(w *trio) {
		w.put(w.away["k"][0], "")
		mux := pawl.NewMux()
		w.works = make(chan string, 100)
		mux.HandleFunc("job", func(_ context.Context, c *pawl.Claim) error {
			if c.Queue == w.away["k"][0] {
				time.Sleep(5 * time.Second) // its ending comes into the fault
			}
			w.works <- c.Queue
			return nil
		})
		ctx, stop := context.WithCancel(w.t.Context())
		w.stop = stop
		queues := pawl.Strict{w.away["k"][0], w.here["k"][0]}
		cfg := pawl.WorkerConfig{Queues: queues, Concurrency: 4, Name: "k", Logger: slog.New(slog.DiscardHandler)}
		go func() { _ = pawl.NewWorker(w.client, mux, cfg).Run(ctx) }()
		time.Sleep(time.Second)
	}, begin: func(w *trio) func() bool {
		time.Sleep(6 * time.Second)
		for range 3 {
			w.put(w.here["k"][0], "")
		}
		return func() bool { return len(w.works) >= 3 }
	}},
}

// While a shard hangs, has no leader or is slow, whatever goes on by itself goes on for the other shards.
func TestBulkheadsOfLoops(t *testing.T) {
	eachFault(t, func(t *testing.T, s *ship, fault string, sick uint32, fail func() (heal func())) {
		well := slices.DeleteFunc([]uint32{1, 2, 3}, func(id uint32) bool { return id == sick })
		w := &trio{ship: s, here: s.sites[well[0]], there: s.sites[well[1]], away: s.sites[sick], client: s.client()}
		for _, r := range loopRows {
			if r.before != nil {
				r.before(w)
			}
		}
		heal := fail()
		for _, r := range loopRows {
			if fault == "slow" || sick == 0 && r.needs == "s" {
				continue
			}
			done, began, limit := r.begin(w), time.Now(), cmp.Or(r.limit, time.Second)
			for !done() && time.Since(began) <= limit {
				time.Sleep(50 * time.Millisecond)
			}
			if took := time.Since(began); took > limit {
				t.Errorf("%s: not done within %v", r.name, limit)
			}
		}
		heal()
		w.stop()
		time.Sleep(15 * time.Second)
	})
}

func shardNumber(text string) (n uint32) {
	_, _ = fmt.Sscan(text, &n)
	return n
}

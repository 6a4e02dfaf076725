package node

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/internal/broker"
)

// loopTest is what the rows of loops are about: the fixtures of two healthy shards, and of a faulty one.
type loopTest struct {
	*faultyNode
	here, there, faulty fixture
	client              *pawl.Client
	handled             chan string // queues of the tasks that the worker has handled
	stopWorker          func()
	claims              map[string][]string // by queue, made before the fault
	groups              map[string]string   // ids, by name
	operation           string              // its id
	key                 string              // of tasks of the queue "limited" in the shard here
}

// loopRow is background work that must go on for the healthy shards. before is done before the fault, begin after it;
// the condition that begin returns must become true within limit, by default a second.
type loopRow struct {
	name   string
	needs  string // s: the work can't go on without the system shard; 1: without the first data shard
	limit  time.Duration
	before func(w *loopTest)
	begin  func(w *loopTest) func() bool
}

// has claims a task of a queue, if there is one.
func (w *loopTest) has(queue string) bool {
	ctx, cancel := context.WithTimeout(w.t.Context(), callTime)
	defer cancel()
	out, err := w.call(ctx, "WorkerService/Claim", `{"queues":[{"queue":"`+queue+`"}],"max":1,"worker":"w"}`)
	return err == nil && out.Get(out.Descriptor().Fields().ByJSONName("tasks")).List().Len() > 0
}

func (w *loopTest) put(queue, more string) {
	w.must("ProducerService/Enqueue", `{"task":`+job(queue, more)+`}`)
}

// job is a task for a queue, in JSON.
func job(queue, more string) string { return `{"type":"job","queue":"` + queue + `"` + more + `}` }

// start makes a call, and does not wait for its answer.
func (w *loopTest) start(method, in string) {
	go func() { _, _ = w.call(w.t.Context(), method, in) }()
	time.Sleep(10 * time.Millisecond)
}

// later runs fn, and returns a function that reports whether it has returned true.
func (w *loopTest) later(fn func() bool) func() bool {
	var done atomic.Bool
	go func() { done.Store(fn()) }()
	return done.Load
}

// text returns the answer to a call, as text; "" after an error.
func (w *loopTest) text(method, in string) string {
	_, text, err := w.timed(rpcRow{name: method}, in)
	if err != nil {
		return ""
	}
	return text
}

// createGroup creates an open group in the shard of its first task.
func (w *loopTest) createGroup(name string, tasks ...string) {
	made := w.must("GroupService/CreateGroup", `{"open":true,"tasks":[`+strings.Join(tasks, ",")+`]}`)
	w.groups[name] = w.field(made, "group", "groupId")
}

var loopRows = []loopRow{
	{name: "outbox: members of groups", begin: func(w *loopTest) func() bool {
		for _, to := range []fixture{w.faulty, w.there} {
			w.start("GroupService/CreateGroup", `{"tasks":[`+job(w.here["member"][0], "")+`,`+job(to["member"][0], "")+`]}`)
		}
		return func() bool { return w.has(w.there["member"][0]) }
	}},
	{name: "outbox: members that are added", before: func(w *loopTest) {
		w.createGroup("open", job(w.here["idle"][0], ""))
	}, begin: func(w *loopTest) func() bool {
		w.start("GroupService/AddGroupTasks", `{"groupId":"`+w.groups["open"]+`","tasks":[`+job(w.faulty["added"][0], "")+`,`+
			job(w.there["added"][0], "")+`]}`)
		return func() bool { return w.has(w.there["added"][0]) }
	}},
	{name: "outbox: notices of members that have ended", before: func(w *loopTest) {
		queue := w.there["finished"][0]
		w.createGroup("waits for its member", job(w.faulty["idle"][0], ""), job(queue, ""))
		w.createGroup("gets its notice", job(w.here["idle"][0], ""), job(queue, ""))
		time.Sleep(100 * time.Millisecond)
		w.claims[queue] = []string{w.claim(queue), w.claim(queue)}
	}, begin: func(w *loopTest) func() bool {
		for _, c := range w.claims[w.there["finished"][0]] {
			w.must("WorkerService/Ack", `{`+c+`}`)
		}
		return func() bool {
			return strings.Contains(w.text("GroupService/GetGroup", `{"groupId":"`+w.groups["gets its notice"]+`"}`), `"succeeded":"1"`)
		}
	}},
	{name: "outbox: cancelled members", before: func(w *loopTest) {
		for _, at := range []fixture{w.faulty, w.there} {
			w.createGroup("cancelled in "+at["shard"][0], job(w.here["idle"][0], ""), job(at["fatal"][0], `,"delay":"3600s"`))
		}
	}, begin: func(w *loopTest) func() bool {
		for _, at := range []fixture{w.faulty, w.there} {
			w.start("GroupService/CancelGroup", `{"groupId":"`+w.groups["cancelled in "+at["shard"][0]]+`"}`)
		}
		return func() bool {
			return strings.Contains(w.text("ProducerService/ListTasks", `{"filter":{"queue":"`+w.there["fatal"][0]+`"}}`),
				"STATE_CANCELLED")
		}
	}},
	// the engine gathers them for 5 s
	{name: "outbox: webhooks' notices of dead letters", needs: "s", limit: 6 * time.Second, before: func(w *loopTest) {
		w.must("WebhookService/AddWebhook", `{"name":"dead","url":"http://192.0.2.1/dead","events":["task.dead"],"queues":["`+
			w.here["fatal"][0]+`"]}`)
	}, begin: func(w *loopTest) func() bool {
		w.die(w.here["fatal"][0])
		return func() bool { got, _ := w.hooks.received("/dead", "task.dead"); return len(got) > 0 }
	}},
	{name: "outbox: follow-ups", before: func(w *loopTest) {
		queue := w.here["follow"][0]
		w.must("WebhookService/AddWebhook", `{"name":"poisoned","url":"http://192.0.2.1/poisoned","events":["task.dead"],"queues":["`+
			w.there["fatal"][0]+`"]}`)
		for _, to := range []fixture{w.faulty, w.there} {
			w.put(queue, `,"then":[`+job(to["follow"][0], "")+`]`)
			w.claims[queue] = append(w.claims[queue], w.claim(queue))
		}
	}, begin: func(w *loopTest) func() bool {
		w.die(w.there["fatal"][0])
		time.Sleep(6 * time.Second) // a message for the system shard waits too
		for _, c := range w.claims[w.here["follow"][0]] {
			w.must("WorkerService/Ack", `{`+c+`}`)
		}
		return func() bool { return w.has(w.there["follow"][0]) }
	}},
	{name: "deadlines", begin: func(w *loopTest) func() bool {
		w.put(w.here["delayed"][0], `,"delay":"0.5s"`)
		return func() bool { return w.has(w.here["delayed"][0]) }
	}},
	{name: "schedules", limit: 2 * time.Second, before: func(w *loopTest) {
		for name, at := range map[string]fixture{"t1": w.here, "t2": w.faulty} {
			w.must("ScheduleService/PutSchedule", `{"spec":{"name":"`+name+`","every":"1s","task":`+job(at["scheduled"][0], "")+`}}`)
		}
	}, begin: func(w *loopTest) func() bool {
		for w.has(w.here["scheduled"][0]) {
		}
		return func() bool { return w.has(w.here["scheduled"][0]) }
	}},
	{name: "schedules: tasks for other shards", limit: 2 * time.Second, before: func(w *loopTest) {
		for name, to := range map[string]fixture{"a1": w.faulty, "a2": w.there} { // a schedule remains in the shard of its first queue
			for _, at := range []fixture{w.here, to} {
				w.must("ScheduleService/PutSchedule", `{"spec":{"name":"`+name+`","every":"1s","task":`+job(at["triggered"][0], "")+`}}`)
			}
		}
	}, begin: func(w *loopTest) func() bool {
		for w.has(w.there["triggered"][0]) {
		}
		return func() bool { return w.has(w.there["triggered"][0]) }
	}},
	{name: "schedules: triggers for other shards", needs: "s", before: func(w *loopTest) {
		for name, to := range map[string]fixture{"b1": w.faulty, "b2": w.there} {
			for _, at := range []fixture{w.here, to} {
				w.must("ScheduleService/PutSchedule", `{"spec":{"name":"`+name+`","every":"3600s","task":`+job(at["spare"][0], "")+`}}`)
			}
		}
	}, begin: func(w *loopTest) func() bool {
		for _, name := range []string{"b1", "b2"} {
			w.start("ScheduleService/TriggerSchedule", `{"name":"`+name+`"}`)
		}
		return func() bool { return w.has(w.there["spare"][0]) }
	}},
	{name: "webhooks: thresholds", needs: "s", limit: 12 * time.Second, before: func(w *loopTest) { // checked every 10 s
		w.must("WebhookService/AddWebhook",
			`{"name":"deep","url":"http://192.0.2.1/deep","events":["queue.over"],"queues":["`+w.here["deep"][0]+`"],"depthOver":"3"}`)
	}, begin: func(w *loopTest) func() bool {
		for range 5 {
			w.put(w.here["deep"][0], "")
		}
		return func() bool { got, _ := w.hooks.received("/deep", "queue.over"); return len(got) > 0 }
	}},
	{name: "copies of queues", needs: "s", begin: func(w *loopTest) func() bool {
		w.start("OperatorService/PauseQueue", `{"queue":"spread"}`)
		return func() bool {
			for _, at := range []fixture{w.here, w.there} {
				on := broker.OnQueue{OnShard: broker.OnShard{Shard: shardNumber(at["shard"][0]), Namespace: "default"}, Queue: "spread"}
				e, err := broker.DescribeQueue.Call(w.t.Context(), w.router, on)
				if err != nil || e.Info.Held == 0 {
					return false
				}
			}
			return true
		}
	}},
	{name: "divisions of quotas", needs: "s", limit: 3 * time.Second, before: func(w *loopTest) { // checked every second
		w.must("AccessService/SetQuotas", `{"name":"default","quotas":{"maxBacklogBytes":"3000000"}}`)
	}, begin: func(w *loopTest) func() bool {
		accepted := 0
		return func() bool {
			_, err := w.call(w.t.Context(), "ProducerService/Enqueue", `{"task":`+job(w.here["idle"][0], `,"payload":"`+
				strings.Repeat("MTEx", 150_000)+`"`)+`}`)
			if err == nil {
				accepted++
			}
			return accepted == 3 // more than a third of the quota
		}
	}},
	{name: "divisions of limits", needs: "s", limit: 3 * time.Second, before: func(w *loopTest) {
		w.must("OperatorService/PutQueue", `{"queue":"limited","settings":{"maxRunning":3}}`)
		w.must("OperatorService/SpreadQueue", `{"queue":"limited","parts":3}`)
		for i := 0; w.key == ""; i++ {
			key := fmt.Sprint(i)
			if w.enqueue(fixture{}, "task", `"queue":"limited","key":"`+key+`"`, 1) == shardNumber(w.here["shard"][0]) {
				w.key = key
			}
		}
		w.must("OperatorService/PurgeQueue", `{"queue":"limited"}`)
	}, begin: func(w *loopTest) func() bool {
		for range 3 {
			w.put("limited", `,"key":"`+w.key+`"`)
		}
		claimed := 0
		return func() bool {
			if w.has("limited") {
				claimed++
			}
			return claimed == 2 // more than a third of the limit
		}
	}},
	{name: "claims that wait", begin: func(w *loopTest) func() bool {
		done := w.later(func() bool {
			queues := `[{"queue":"` + w.faulty["awaited"][0] + `"},{"queue":"` + w.here["awaited"][0] + `"}]`
			out, err := w.call(w.t.Context(), "WorkerService/Claim", `{"queues":`+queues+`,"max":1,"worker":"w","wait":"20s"}`)
			return err == nil && out.Get(out.Descriptor().Fields().ByJSONName("tasks")).List().Len() > 0
		})
		time.Sleep(3 * time.Second)
		w.put(w.here["awaited"][0], "")
		return done
	}},
	{name: "operations", needs: "1", limit: 2 * time.Second, before: func(w *loopTest) {
		for _, at := range []fixture{w.here, w.there, w.faulty} {
			for range 3 {
				w.must("ProducerService/Enqueue", `{"task":{"type":"operated","delay":"3600s","queue":"`+at["operated"][0]+`"}}`)
			}
		}
		started := w.must("OperationService/StartOperation",
			`{"spec":{"action":"ACTION_CANCEL","canary":"1","filter":{"type":"operated","states":["STATE_SCHEDULED"]}}}`)
		w.operation = w.field(started, "operation", "operationId")
		time.Sleep(time.Second)
	}, begin: func(w *loopTest) func() bool {
		w.must("OperationService/ResumeOperation", `{"operationId":"`+w.operation+`"}`)
		return func() bool {
			for _, at := range []fixture{w.here, w.there} {
				if strings.Count(w.text("ProducerService/ListTasks", `{"filter":{"queue":"`+at["operated"][0]+`"}}`),
					"STATE_CANCELLED") != 3 {
					return false
				}
			}
			return true
		}
	}},
	{name: "probes", begin: func(w *loopTest) func() bool {
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
	{name: "SDK: a worker", before: func(w *loopTest) {
		w.put(w.faulty["worked"][0], "")
		mux := pawl.NewMux()
		w.handled = make(chan string, 100)
		mux.HandleFunc("job", func(_ context.Context, c *pawl.Claim) error {
			if c.Queue == w.faulty["worked"][0] {
				time.Sleep(5 * time.Second) // it ends during the fault
			}
			w.handled <- c.Queue
			return nil
		})
		ctx, stop := context.WithCancel(w.t.Context())
		w.stopWorker = stop
		queues := pawl.Strict{w.faulty["worked"][0], w.here["worked"][0]}
		cfg := pawl.WorkerConfig{Queues: queues, Concurrency: 4, Name: "worker", Logger: slog.New(slog.DiscardHandler)}
		go func() { _ = pawl.NewWorker(w.client, mux, cfg).Run(ctx) }()
		time.Sleep(time.Second)
	}, begin: func(w *loopTest) func() bool {
		time.Sleep(6 * time.Second)
		for range 3 {
			w.put(w.here["worked"][0], "")
		}
		return func() bool { return len(w.handled) >= 3 }
	}},
	{name: "SDK: a batch, as of an outbox's relay", begin: func(w *loopTest) func() bool {
		go func() {
			ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
			defer cancel()
			items := []pawl.Item{{Args: pawl.RawTask{Type: "job"}, Options: []pawl.Option{pawl.Queue(w.faulty["batch"][0])}},
				{Args: pawl.RawTask{Type: "job"}, Options: []pawl.Option{pawl.Queue(w.here["batch"][0])}}}
			_, _ = w.client.EnqueueBatch(ctx, items)
		}()
		return func() bool { return w.has(w.here["batch"][0]) }
	}},
	{name: "new shards", needs: "s", begin: func(w *loopTest) func() bool {
		w.start("ClusterService/AddShards", fmt.Sprintf(`{"total":%d}`, bulkheadShards+1))
		return func() bool {
			new := w.replicas.get(bulkheadShards + 1)
			return new != nil && new.shard.Leads()
		}
	}},
}

// die makes a task of a queue a dead letter.
func (w *loopTest) die(queue string) {
	w.put(queue, "")
	w.must("WorkerService/Fail", `{`+w.claim(queue)+`,"outcome":"FAIL_OUTCOME_DEAD"}`)
}

// While a shard hangs, has no leader or is slow, background work goes on for the other shards. All of the test is in
// the bubble of eachFault, so its sleeps take no time.
func TestBulkheadsOfLoops(t *testing.T) {
	eachFault(t, func(t *testing.T, s *faultyNode, fault string, faulty uint32, fail func() (heal func())) {
		healthy := slices.DeleteFunc([]uint32{1, 2, 3}, func(id uint32) bool { return id == faulty })
		w := &loopTest{faultyNode: s, here: s.fixtures[healthy[0]], there: s.fixtures[healthy[1]], faulty: s.fixtures[faulty],
			client: s.client(), claims: map[string][]string{}, groups: map[string]string{}}
		for _, r := range loopRows {
			if r.before != nil {
				r.before(w)
			}
		}
		heal := fail()
		for _, r := range loopRows {
			if faulty == 0 && r.needs == "s" || faulty == 1 && r.needs == "1" {
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
		w.stopWorker()
		time.Sleep(15 * time.Second)
	})
}

func shardNumber(text string) (n uint32) {
	_, _ = fmt.Sscan(text, &n)
	return n
}

// loops are the background loops of a node: for each, the row of loopRows that tests it, or, after a dash, what does.
var loops = map[string]string{
	"broker.(*archiver).run":                        "- it is of one shard",
	"broker.(*operationRunner).run":                 "operations",
	"broker.(*operationRunner).runOperation":        "operations",
	"broker.(*outboxSender).run":                    "outbox: follow-ups",
	"broker.(*replica).checkClaims":                 "- it is of one shard",
	"broker.(*ticker).run":                          "deadlines",
	"cluster.(*Reconciler).Run":                     "- TestLoopSkipsSilentShard in package cluster",
	"system/queues.(*Queues).AdvanceMoves":          "- TestMovesBesideAHangingShard in package queues",
	"system/queues.(*Queues).Repair":                "copies of queues",
	"system/quotas.(*Divider).Run":                  "divisions of quotas",
	"system/webhooks.(*Dispatcher).Run":             "outbox: webhooks' notices of dead letters",
	"system/webhooks.(*Dispatcher).watchThresholds": "webhooks: thresholds",
	"node.(*Node).tellOthers":                       "- it asks a shard only about a loss, and then ends the node",
	"node.(*Node).refreshMap":                       "- it asks nodes, not shards",
	"node.(*Node).watchCertificates":                "- it reads files",
	"node.(*agent).run":                             "new shards",
	"node.(*health).watchClock":                     "- it waits for no shard",
	"node.(*heartbeat).follow":                      "- it needs the system shard only",
	"node/evidence.Recorder.NoteRefusals":           "- it needs the system shard only",
	"node/members.(*Comparer).Run":                  "- TestComparisonsBesideAHangingShard",
	"router/forward.(*remoteCalls).watch":           "- it asks nodes, not shards",
	"router/forward.(*Lifetime).begin":              "- it waits for the end of the router",
	"router.(*Workers).Watch":                       "- it asks nodes, not shards",
}

// Every background loop of the node has a row, or a reason why it has none.
func TestBulkheadsOfLoopsAreComplete(t *testing.T) {
	found := map[string]bool{}
	note := func() {
		time.Sleep(20 * time.Second) // until what begins with the node has ended
		for name := range backgroundLoops() {
			found[name] = true
		}
	}
	synctest.Test(t, func(t *testing.T) { newFaultyNode(t); note() })
	synctest.Test(t, func(t *testing.T) { newNetwork(t).form(); note() })
	for name := range found {
		if loops[name] == "" {
			t.Errorf("%s is a background loop without a row in loops: does it wait for a shard while others need it?", name)
		}
	}
	for name, row := range loops {
		if !found[name] {
			t.Errorf("%s is not a background loop any more", name)
		}
		if !strings.HasPrefix(row, "- ") && !slices.ContainsFunc(loopRows, func(r loopRow) bool { return r.name == row }) {
			t.Errorf("%s: loopRows has no row %q", name, row)
		}
	}
}

// backgroundLoops returns the functions that run on goroutines of their own in the bubble of the caller: of each
// goroutine, the outermost function of this program that is not a closure, or else the one with the closure, if it is
// in a package that knows several shards.
func backgroundLoops() map[string]bool {
	synctest.Wait()
	b := make([]byte, 16<<20)
	stacks := strings.Split(string(b[:runtime.Stack(b, true)]), "\n\n")
	_, bubble, _ := strings.Cut(strings.SplitN(stacks[0], "\n", 2)[0], "synctest bubble ")
	all := map[string]bool{}
	for _, stack := range stacks[1:] {
		lines := strings.Split(stack, "\n")
		if !strings.Contains(lines[0], "synctest bubble "+bubble) {
			continue
		}
		loop := ""
		for i, line := range slices.Backward(lines) {
			m := frame.FindStringSubmatch(line)
			if m == nil || strings.Contains(lines[i+1], "_test.go:") {
				continue
			}
			if loop = cmp.Or(loop, m[1]); m[2] == "" {
				loop = m[1]
				break
			}
		}
		if knowsShards.MatchString(loop) {
			all[loop] = true
		}
	}
	return all
}

// frame matches a function of this program in a stack, and what makes it a closure.
var frame = regexp.MustCompile(`^github\.com/pawlq/pawl/internal/(\S+?)(?:-fm)?(\.func\d\S*)?\([^()]*\)$`)

// knowsShards matches the functions of packages that know several shards. Those of the gateway run on goroutines of calls.
var knowsShards = regexp.MustCompile(`^(broker|cluster|node|router|system)[./]`)

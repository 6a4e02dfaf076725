package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/internal/registry"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// workerInfo is a worker as the API shows it.
type workerInfo struct {
	ID       string        `json:"worker_id"`
	Name     string        `json:"worker"`
	Node     string        `json:"node"`
	Stream   bool          `json:"connected"`
	PID      int           `json:"pid"`
	Slots    int           `json:"slots"`
	Running  int           `json:"running"`
	Draining bool          `json:"draining"`
	LostAt   time.Time     `json:"lost_at"`
	Lost     string        `json:"lost_reason"`
	Tasks    []runningTask `json:"tasks"`
	Quiet    *quietWord    `json:"quiet"`
}

type runningTask struct {
	ID      string `json:"task_id"`
	Queue   string `json:"queue"`
	Attempt int    `json:"attempt"`
}

type quietWord struct {
	Reason string `json:"reason"`
	By     string `json:"by"`
}

type workerAPI interface {
	// Workers lists the workers that take tasks from a queue; "": all.
	Workers(ctx context.Context, queue string) ([]workerInfo, error)
	// LostWorkers lists the workers that are lost, or those that are not.
	LostWorkers(ctx context.Context, lost bool) ([]workerInfo, error)
	Worker(ctx context.Context, id string) (workerInfo, error)
	Quiet(ctx context.Context, id, reason string) (workerInfo, error)
	ResumeWorker(ctx context.Context, id string) (workerInfo, error)
}

// workers returns the API of a story about the gateway.
func (w *world) workers() workerAPI { return w.api.(workerAPI) }

func TestWorkers(t *testing.T) {
	tellAll(t, []story{
		ofTheGateway(story{name: "workers that claim are listed with their running tasks until they have been silent for long",
			tell: func(w *world) {
				w.fill(3, spec{Queue: "mail"})
				c := w.claims(claimCall{Queues: []string{"mail"}, Max: 2, Worker: "w1"})
				all := ok[[]workerInfo](w)(w.workers().Workers(w.ctx(), ""))
				is(w, "how many there are", len(all), 1)
				one := all[0]
				is(w, "the worker", []any{one.Name, one.Node, one.Stream, one.Running, one.Slots, one.Quiet == nil},
					[]any{"w1", "n1", false, 2, 2, true})
				is(w, "what it runs", []any{one.Tasks[0].Queue, one.Tasks[0].Attempt}, []any{"mail", 1})
				is(w, "one by its id", ok[workerInfo](w)(w.workers().Worker(w.ctx(), one.ID)), one)
				is(w, "of another queue", len(ok[[]workerInfo](w)(w.workers().Workers(w.ctx(), "sms"))), 0)
				w.ack(c[0])
				is(w, "after an ack", ok[workerInfo](w)(w.workers().Worker(w.ctx(), one.ID)).Running, 1)
				w.ack(c[1])
				for range 6 {
					w.pass(minute)
				}
				is(w, "long after", len(ok[[]workerInfo](w)(w.workers().Workers(w.ctx(), ""))), 0)
				_, err := w.workers().Worker(w.ctx(), one.ID)
				w.refused("one that is gone", err, refusal{Code: "not_found"})
			}}),
		ofTheGateway(story{name: "a worker whose leases expire is lost, and listed for an hour", tell: func(w *world) {
			w.fill(3, spec{Queue: "mail"})
			c := w.claims(claimCall{Queues: []string{"mail"}, Max: 3, Worker: "w1", Lease: minute})
			w.ack(c[2])
			ends := w.now().Add(minute.std())
			w.pass(minute)
			w.pass(minute)
			one := ok[[]workerInfo](w)(w.workers().Workers(w.ctx(), ""))[0]
			is(w, "the worker", []any{one.Name, one.Stream, one.Running, one.Lost, one.LostAt.UTC()},
				[]any{"w1", false, 2, "lease_lost", ends})
			is(w, "what it held", []any{len(one.Tasks), slices.Contains([]string{c[0].ID, c[1].ID}, one.Tasks[0].ID), one.Tasks[0].Queue},
				[]any{2, true, "mail"})
			is(w, "one by its id", ok[workerInfo](w)(w.workers().Worker(w.ctx(), one.ID)), one)
			is(w, "those that are lost", ok[[]workerInfo](w)(w.workers().LostWorkers(w.ctx(), true)), []workerInfo{one})
			is(w, "those that are not", len(ok[[]workerInfo](w)(w.workers().LostWorkers(w.ctx(), false))), 0)
			is(w, "of another queue", len(ok[[]workerInfo](w)(w.workers().Workers(w.ctx(), "sms"))), 0)
			_, err := w.workers().Quiet(w.ctx(), one.ID, "deploy")
			w.refused("to make it quiet", err, refusal{Code: "not_found"})
			is(w, "workers of the queue, as explain counts them", w.testNode.registry.Tally([]registry.QueueName{{Namespace: namespace,
				Name: "mail"}}).Queues[0] == nil, true)
			for range 57 {
				w.pass(minute)
			}
			is(w, "most of an hour later", len(ok[[]workerInfo](w)(w.workers().Workers(w.ctx(), ""))), 1)
			for range 3 {
				w.pass(minute)
			}
			is(w, "an hour later", len(ok[[]workerInfo](w)(w.workers().Workers(w.ctx(), ""))), 0)

			w.claims(claimCall{Queues: []string{"mail"}, Max: 1, Worker: "w1", Lease: minute})
			w.pass(minute)
			w.pass(minute)
			is(w, "lost again", ok[[]workerInfo](w)(w.workers().Workers(w.ctx(), ""))[0].Lost, "lease_lost")
			w.claims(claimCall{Queues: []string{"mail"}, Max: 1, Worker: "w1", Lease: minute})
			back := ok[[]workerInfo](w)(w.workers().Workers(w.ctx(), ""))
			is(w, "one that comes back", []any{len(back), back[0].Lost, back[0].LostAt.IsZero(), back[0].Running}, []any{1, "", true, 1})
		}}),
		ofTheGateway(story{name: "a quiet worker gets no tasks until it is resumed", tell: func(w *world) {
			w.fill(3, spec{})
			client := newSDK(w.T, w.testNode) // its claims have keys: a quiet worker's claims ask the shard for what an earlier one got
			claimAs := func(worker string) int {
				w.Helper()
				return len(ok[[]claim](w)(client.Claim(w.ctx(), claimCall{Queues: []string{"default"}, Max: 1, Worker: worker})))
			}
			is(w, "before", claimAs("w1"), 1)
			id := ok[[]workerInfo](w)(w.workers().Workers(w.ctx(), ""))[0].ID
			quiet := ok[workerInfo](w)(w.workers().Quiet(w.ctx(), id, "deploy"))
			is(w, "the word", []any{quiet.ID, quiet.Quiet.Reason, quiet.Quiet.By}, []any{id, "deploy", actor})
			synctest.Wait()
			is(w, "one that is quiet", claimAs("w1"), 0)
			got, err := claims.New(client.client).Poll(w.ctx(), claims.Request{Queues: pawl.Strict{"default"}, Worker: "w1"})
			is(w, "what it hears", []any{len(got.Claims), got.Quiet, got.QuietReason, err}, []any{0, true, "deploy", nil})
			is(w, "another", claimAs("w2"), 1)
			is(w, "as it is told", ok[workerInfo](w)(w.workers().Worker(w.ctx(), id)).Quiet.Reason, "deploy")
			ok[workerInfo](w)(w.workers().ResumeWorker(w.ctx(), id))
			synctest.Wait()
			is(w, "one that resumed", claimAs("w1"), 1)
			for _, bad := range []string{"a%2Fb", "nobody"} {
				_, err := w.workers().Quiet(w.ctx(), bad, "")
				is(w, "a refusal of "+bad, err != nil, true)
			}
			_, err = w.workers().ResumeWorker(w.ctx(), "nobody")
			w.refused("a resume of nobody", err, refusal{Code: "not_found"})
		}}),
	})
}

// A worker of the SDK learns that it is to be quiet, and stays quiet across its streams.
func TestSDKWorkerIsQuiet(t *testing.T) {
	tellAll(t, []story{ofTheGateway(story{name: "an SDK worker becomes quiet and resumes", tell: func(w *world) {
		client := newSDK(w.T, w.testNode).client
		mux := pawl.NewMux()
		var ran atomic.Int64
		mux.HandleFunc("job", func(context.Context, *pawl.Claim) error { ran.Add(1); return nil })
		worker := pawl.NewWorker(client, mux, pawl.WorkerConfig{Concurrency: 3, Name: "w1"})
		ctx, stop := context.WithCancel(w.ctx())
		ended := make(chan error, 1)
		go func() { ended <- worker.Run(ctx) }()
		jobs := func(n int) {
			for range n {
				w.id(spec{Type: "job"})
			}
		}
		jobs(2)
		w.pass(second)
		is(w, "what ran", ran.Load(), int64(2))
		one := ok[[]workerInfo](w)(w.workers().Workers(w.ctx(), "default"))[0]
		is(w, "the worker", []any{one.Name, one.Stream, one.Slots, one.PID != 0}, []any{"w1", true, 3, true})
		ok[workerInfo](w)(w.workers().Quiet(w.ctx(), one.ID, "deploy"))
		w.pass(second)
		jobs(2)
		for range 15 { // over several streams: a silent one is reopened, at first after a minute
			w.pass(minute)
		}
		is(w, "what ran", ran.Load(), int64(2))
		is(w, "what it says", []bool{worker.Stats().Quiet, worker.Stats().Reconnects > 2}, []bool{true, true})
		again := ok[workerInfo](w)(w.workers().Worker(w.ctx(), one.ID))
		is(w, "it is the same", again.Quiet != nil, true)
		ok[workerInfo](w)(w.workers().ResumeWorker(w.ctx(), one.ID))
		w.pass(second)
		is(w, "what ran", ran.Load(), int64(4))
		is(w, "what it says", worker.Stats().Quiet, false)
		stop()
		must(w.T, <-ended)
	}})})
}

// cable carries a client's connections until it is cut.
type cable struct {
	testNode *testNode
	mu       sync.Mutex
	conns    []net.Conn
	gone     bool
}

func (c *cable) dial(ctx context.Context, _ string) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return nil, errors.New("the cable is cut")
	}
	conn, err := c.testNode.pipe.DialContext(ctx)
	c.conns = append(c.conns, conn)
	return conn, err
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

// A worker of the SDK whose process dies is lost, with the tasks that it held; one that drains is not.
func TestSDKWorkerIsLost(t *testing.T) {
	tellAll(t, []story{ofTheGateway(story{name: "an SDK worker that dies is lost, one that drains is not", tell: func(w *world) {
		run := func(name string) (*cable, func()) {
			line := &cable{testNode: w.testNode}
			client, err := pawl.Dial("house", pawl.DialOptions{Logger: slog.New(slog.DiscardHandler), Dialer: line.dial})
			must(w.T, err)
			closeAtEnd(w.T, client)
			mux := pawl.NewMux()
			mux.HandleFunc("job", func(ctx context.Context, _ *pawl.Claim) error { <-ctx.Done(); return ctx.Err() })
			worker := pawl.NewWorker(client, mux, pawl.WorkerConfig{Concurrency: 1, Name: name, DrainTimeout: -1})
			ctx, stop := context.WithCancel(w.ctx())
			ended := make(chan error, 1)
			go func() { ended <- worker.Run(ctx) }()
			synctest.Wait()
			return line, func() { stop(); <-ended }
		}
		id := w.id(spec{Type: "job"})
		dies, stop := run("dies")
		defer stop()
		w.id(spec{Type: "job"})
		_, drain := run("drains")
		w.pass(second)
		is(w, "who is there", len(ok[[]workerInfo](w)(w.workers().LostWorkers(w.ctx(), false))), 2)
		at := w.now()
		dies.cut() // as if its process had died
		drain()
		w.pass(minute)
		all := ok[[]workerInfo](w)(w.workers().Workers(w.ctx(), ""))
		is(w, "how many are told of", len(all), 1)
		one := all[0]
		is(w, "the one that died", []any{one.Name, one.Stream, one.Lost, one.LostAt.UTC(), one.Running, one.Tasks[0].ID},
			[]any{"dies", false, "disconnected", at, 1, id})
	}})})
}

// restWorker is a worker with all its fields: the suite checks some.
type restWorker struct{ workerInfo }

// UnmarshalJSON implements json.Unmarshaler.
func (w *restWorker) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &w.workerInfo) }

func (d *rest) Workers(ctx context.Context, queue string) (all []workerInfo, err error) {
	var list struct {
		Items []restWorker `json:"items"`
		Next  string       `json:"next_cursor"`
	}
	q := url.Values{}
	if queue != "" {
		q.Set("queue", queue)
	}
	err = d.query(ctx, "GET", "/workers", q, &list)
	for _, w := range list.Items {
		all = append(all, w.workerInfo)
	}
	return all, err
}

func (d *rest) LostWorkers(ctx context.Context, lost bool) (all []workerInfo, err error) {
	var list struct {
		Items []restWorker `json:"items"`
		Next  string       `json:"next_cursor"`
	}
	err = d.query(ctx, "GET", "/workers", url.Values{"lost": {strconv.FormatBool(lost)}}, &list)
	for _, w := range list.Items {
		all = append(all, w.workerInfo)
	}
	return all, err
}

func (d *rest) Worker(ctx context.Context, id string) (workerInfo, error) {
	var w restWorker
	err := d.query(ctx, "GET", "/workers/"+id, nil, &w)
	return w.workerInfo, err
}

func (d *rest) Quiet(ctx context.Context, id, reason string) (workerInfo, error) {
	var w restWorker
	err := d.call(ctx, "POST", "/workers/"+id+"/quiet", fields{}.with(reason != "", "reason", reason), &w)
	return w.workerInfo, err
}

func (d *rest) ResumeWorker(ctx context.Context, id string) (workerInfo, error) {
	var w restWorker
	err := d.call(ctx, "POST", "/workers/"+id+"/resume", fields{}, &w)
	return w.workerInfo, err
}

func (d *rpc) Workers(ctx context.Context, queue string) (all []workerInfo, err error) {
	a, err := ask(ctx, d.registry.ListWorkers, &pawlv1.ListWorkersRequest{Queue: text(queue)})
	for _, w := range a.GetItems() {
		all = append(all, workerProto(w))
	}
	return all, err
}

func (d *rpc) LostWorkers(ctx context.Context, lost bool) (all []workerInfo, err error) {
	a, err := ask(ctx, d.registry.ListWorkers, &pawlv1.ListWorkersRequest{Lost: &lost})
	for _, w := range a.GetItems() {
		all = append(all, workerProto(w))
	}
	return all, err
}

func (d *rpc) Worker(ctx context.Context, id string) (workerInfo, error) {
	a, err := ask(ctx, d.registry.GetWorker, &pawlv1.GetWorkerRequest{WorkerId: id})
	return workerProto(a.GetWorker()), err
}

func (d *rpc) Quiet(ctx context.Context, id, reason string) (workerInfo, error) {
	a, err := ask(ctx, d.registry.QuietWorker, &pawlv1.QuietWorkerRequest{WorkerId: id, Reason: reason})
	return workerProto(a.GetWorker()), err
}

func (d *rpc) ResumeWorker(ctx context.Context, id string) (workerInfo, error) {
	a, err := ask(ctx, d.registry.ResumeWorker, &pawlv1.ResumeWorkerRequest{WorkerId: id})
	return workerProto(a.GetWorker()), err
}

func workerProto(p *pawlv1.Worker) (w workerInfo) {
	w = workerInfo{ID: p.GetWorkerId(), Name: p.GetWorker(), Node: p.GetNode(), Stream: p.GetConnected(), PID: int(p.GetPid()),
		Slots: int(p.GetSlots()), Running: int(p.GetRunning()), Draining: p.GetDraining(), Lost: p.GetLostReason()}
	if at := p.GetLostAt(); at != nil {
		w.LostAt = at.AsTime()
	}
	for _, t := range p.GetTasks() {
		w.Tasks = append(w.Tasks, runningTask{t.GetTaskId(), t.GetQueue(), int(t.GetAttempt())})
	}
	if q := p.GetQuiet(); q != nil {
		w.Quiet = &quietWord{q.GetReason(), q.GetBy()}
	}
	return w
}

func (d *sdk) Workers(ctx context.Context, queue string) (all []workerInfo, err error) {
	for w, err := range d.admin().Workers().List(ctx, admin.WorkerFilter{Queue: queue}) {
		if err != nil {
			return nil, refusedBySDK(err)
		}
		all = append(all, workerSDK(w))
	}
	return all, nil
}

func (d *sdk) LostWorkers(ctx context.Context, lost bool) (all []workerInfo, err error) {
	for w, err := range d.admin().Workers().List(ctx, admin.WorkerFilter{Lost: &lost}) {
		if err != nil {
			return nil, refusedBySDK(err)
		}
		all = append(all, workerSDK(w))
	}
	return all, nil
}

func (d *sdk) Worker(ctx context.Context, id string) (workerInfo, error) {
	w, err := d.admin().Workers().Get(ctx, id)
	return workerSDK(w), refusedBySDK(err)
}

func (d *sdk) Quiet(ctx context.Context, id, reason string) (workerInfo, error) {
	w, err := d.admin().WithReason(reason).Workers().Quiet(ctx, id, 0)
	return workerSDK(w), refusedBySDK(err)
}

func (d *sdk) ResumeWorker(ctx context.Context, id string) (workerInfo, error) {
	w, err := d.admin().Workers().Resume(ctx, id)
	return workerSDK(w), refusedBySDK(err)
}

func workerSDK(i *admin.Worker) (w workerInfo) {
	if i == nil {
		return w
	}
	w = workerInfo{ID: i.ID, Name: i.Name, Node: i.Node, Stream: i.Connected, PID: i.PID, Slots: i.Slots, Running: i.Running,
		Draining: i.Draining, LostAt: i.LostAt, Lost: i.LostReason}
	for _, t := range i.Tasks {
		w.Tasks = append(w.Tasks, runningTask{t.ID, t.Queue, t.Attempt})
	}
	if i.Quiet != nil {
		w.Quiet = &quietWord{i.Quiet.Reason, i.Quiet.By}
	}
	return w
}

func (d *roundRobin) Workers(ctx context.Context, queue string) ([]workerInfo, error) {
	return d.next().(workerAPI).Workers(ctx, queue)
}
func (d *roundRobin) LostWorkers(ctx context.Context, lost bool) ([]workerInfo, error) {
	return d.next().(workerAPI).LostWorkers(ctx, lost)
}
func (d *roundRobin) Worker(ctx context.Context, id string) (workerInfo, error) {
	return d.next().(workerAPI).Worker(ctx, id)
}
func (d *roundRobin) Quiet(ctx context.Context, id, reason string) (workerInfo, error) {
	return d.next().(workerAPI).Quiet(ctx, id, reason)
}
func (d *roundRobin) ResumeWorker(ctx context.Context, id string) (workerInfo, error) {
	return d.next().(workerAPI).ResumeWorker(ctx, id)
}

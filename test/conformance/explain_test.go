package conformance

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/admin"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// explainAPI is the part of an API that explains why a task waits.
type explainAPI interface {
	Explain(ctx context.Context, id string) (explanation, error)
	ExplainQueue(ctx context.Context, name string) (queueExplanation, error)
}

type explanation struct {
	ID      string   `json:"task_id"`
	State   string   `json:"state"`
	Status  string   `json:"status"`
	Queue   string   `json:"queue"`
	Type    string   `json:"type"`
	Key     string   `json:"key"`
	Reasons []reason `json:"reasons"`
}

type reason struct {
	Code    string    `json:"code"`
	Detail  string    `json:"detail"`
	Change  string    `json:"change"`
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until"`
	Queue   string    `json:"queue"`
	Type    string    `json:"type"`
	Key     string    `json:"key"`
	Cause   string    `json:"cause"`
	Error   string    `json:"error"`
	Limit   int       `json:"limit"`
	Rate    *rate     `json:"rate"`
	Running []runner  `json:"running"`
	Types   []string  `json:"types"`
	Count   int64     `json:"count"`
	More    bool      `json:"more"`
	Shard   uint32    `json:"shard"`
}

type runner struct {
	ID     string    `json:"task_id"`
	Worker string    `json:"worker"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
}

type queueExplanation struct {
	Queue       string     `json:"queue"`
	Ready       int64      `json:"ready"`
	Claimable   int64      `json:"claimable"`
	Claimed     int64      `json:"claimed"`
	Waiting     int64      `json:"waiting"`
	Reasons     []reason   `json:"reasons"`
	Keys        []heldKey  `json:"keys"`
	IdleTypes   []idleType `json:"idle_types"`
	NextDue     time.Time  `json:"next_due"`
	OldestReady time.Time  `json:"oldest_ready_at"`
	Partial     bool       `json:"partial"`
}

type heldKey struct {
	Key   string    `json:"key"`
	Code  string    `json:"code"`
	Tasks int64     `json:"tasks"`
	Until time.Time `json:"until"`
}

type idleType struct {
	Type  string `json:"type"`
	Tasks int64  `json:"tasks"`
}

func TestExplain(t *testing.T) {
	tellAll(t, []story{
		{name: "explain: a task that is not due, or that no worker takes", tell: func(w *world) {
			id := w.id(spec{Type: "a", Key: "k", Delay: hour})
			due := w.at(hour)
			e := w.explain(id)
			is(w, "the task", explanation{ID: e.ID, State: e.State, Status: e.Status, Queue: e.Queue, Type: e.Type, Key: e.Key},
				explanation{ID: id, State: "scheduled", Status: "queued", Queue: "default", Type: "a", Key: "k"})
			is(w, "the reasons", facts(e.Reasons), []reason{{Code: "not_due", Cause: "delay", Until: due},
				{Code: "no_worker", Queue: "default"}})
		}},
		{name: "explain: a task that runs, failed, and ended", tell: func(w *world) {
			id := w.id(spec{})
			w.claimBy("w1")
			until := w.at(30 * second)
			is(w, "of one that runs", facts(w.explain(id).Reasons), []reason{{Code: "running", Since: w.now(), Until: until,
				Running: []runner{{id, "w1", w.now(), until}}}})
			id = w.id(spec{Retry: retry{Initial: minute, Jitter: noJitter}})
			c := w.claimBy("w2")
			w.fail(c, failing{Message: "boom"})
			is(w, "of one that failed", facts(w.explain(id).Reasons), []reason{{Code: "not_due", Cause: "failed", Error: "boom",
				Until: w.at(minute)}})
			ok[view](w)(w.api.Cancel(w.ctx(), id))
			is(w, "of one that was cancelled", facts(w.explain(id).Reasons),
				[]reason{{Code: "ended", Cause: "caller", Since: w.now(), Error: "boom"}})
		}},
		{name: "explain: a follow-up task waits until its queue has room", tell: func(w *world) {
			w.put("mail", settings{MaxLength: 1})
			w.enqueue(spec{Queue: "mail"})
			id := w.id(spec{Then: []spec{{Type: "next", Queue: "mail"}}})
			w.ack(w.claim())
			sent := w.now()
			w.pass(10 * second)
			all := w.explain(id).Reasons
			if len(all) != 2 || all[0].Code != "ended" {
				w.Fatalf("the reasons are %+v, want two, the first with code ended", all)
			}
			r := all[1]
			is(w, "what is on its way", []any{r.Code, r.Queue, r.Type, r.Since, r.Count > 1, strings.Contains(r.Error, `queue "mail"`)},
				[]any{"on_its_way", "mail", "next", sent, true, true})
			is(w, "how it reads", strings.Contains(r.Detail, fmt.Sprintf("; %d attempts failed: ", r.Count)), true)
			w.ack(w.one(from("mail")))
			w.pass(minute)
			is(w, "when there is room", len(w.explain(id).Reasons), 1)
			is(w, "what came", w.one(from("mail")).Type, "next")
		}},
		{name: "explain: several pauses at once", tell: func(w *world) {
			w.put("default", settings{})
			id := w.id(spec{Type: "report", Key: "acme"})
			ok[queueInfo](w)(w.api.Pause(w.ctx(), "default", pause{Key: "acme", Reason: "debt"}))
			ok[queueInfo](w)(w.api.Pause(w.ctx(), "default", pause{Type: "report"}))
			ok[queueInfo](w)(w.api.Pause(w.ctx(), "default", pause{Reason: "deploy"}))
			since := w.now()
			w.nothing()
			paused := []reason{{Code: "queue_paused", Queue: "default", Cause: "deploy", Since: since},
				{Code: "type_paused", Queue: "default",
					Type: "report", Since: since},
				{Code: "key_paused", Queue: "default", Key: "acme", Cause: "debt", Since: since}}
			is(w, "of the task", facts(w.explain(id).Reasons), paused)
			q := w.explainQueue("default")
			paused[0].Count, paused[1].Count = 1, 1
			paused[2] = reason{Code: "key_paused", Queue: "default", Count: 1}
			is(w, "of the queue", facts(q.Reasons), paused)
			q.Reasons = nil
			is(w, "the numbers", q, queueExplanation{Queue: "default", Ready: 1,
				Keys: []heldKey{{Key: "acme", Code: "key_paused", Tasks: 1}}, OldestReady: since})
		}},
		{name: "explain: limits of a queue and of a key, and which tasks use them", tell: func(w *world) {
			w.put("default", settings{limits: limits{MaxRunning: 2, Rate: &rate{Limit: 2, Period: 10 * second, Burst: 2}},
				PerKey: &limits{MaxRunning: 1, Rate: &rate{Limit: 1, Period: minute, Burst: 1}}})
			running := []runner{}
			began := w.now()
			for _, key := range []string{"a", "b"} {
				w.enqueue(spec{Key: key})
			}
			for range 2 {
				c := w.claimBy("w1")
				running = append(running, runner{c.ID, "w1", began, c.LeaseExpiresAt})
			}
			byID(running)
			id := w.id(spec{Key: "a"})
			of := func(key string) []runner {
				for _, r := range running {
					if w.get(r.ID).Key == key {
						return []runner{r}
					}
				}
				return nil
			}
			is(w, "of the task", facts(w.explain(id).Reasons), []reason{
				{Code: "queue_max_running", Queue: "default", Limit: 2, Running: running},
				{Code: "queue_rate", Queue: "default", Rate: &rate{Limit: 2, Period: 10 * second, Burst: 2},
					Until: began.Add(5 * time.Second)},
				{Code: "key_max_running", Queue: "default", Key: "a", Limit: 1, Running: of("a")},
				{Code: "key_rate", Queue: "default", Key: "a", Rate: &rate{Limit: 1, Period: minute, Burst: 1},
					Until: began.Add(time.Minute)}})
			q := w.explainQueue("default")
			is(w, "of the queue", facts(q.Reasons), []reason{
				{Code: "queue_max_running", Queue: "default", Limit: 2, Running: running, Count: 1},
				{Code: "queue_rate", Queue: "default", Rate: &rate{Limit: 2, Period: 10 * second, Burst: 2},
					Until: began.Add(5 * time.Second), Count: 1},
				{Code: "key_max_running", Queue: "default", Count: 1}})
			is(w, "the keys", q.Keys, []heldKey{{Key: "a", Code: "key_max_running", Tasks: 1}})
			is(w, "the numbers", []int64{q.Ready, q.Claimable, q.Claimed}, []int64{1, 0, 2})
		}},
		{name: "explain: tasks that go first", tell: func(w *world) {
			asked := w.now()
			w.nothing()
			w.fill(2, spec{Priority: "high"})
			first := w.id(spec{})
			w.fill(2, spec{})
			is(w, "the reasons", facts(w.explain(w.id(spec{})).Reasons), []reason{{Code: "higher_priority", Queue: "default", Count: 2},
				{Code: "older_tasks", Queue: "default", Count: 3}, {Code: "workers_busy", Queue: "default", Since: asked}})
			asked = w.now()
			w.claims(from("default").most(2))
			is(w, "of the first", facts(w.explain(first).Reasons), []reason{{Code: "workers_busy", Queue: "default", Since: asked}})
		}},
		{name: "explain: workers that claim, take other types, are busy, or wait", tell: func(w *world) {
			id := w.id(spec{Type: "report"})
			is(w, "its claims", len(w.claims(claimCall{Queues: []string{"default"}, Types: []string{"sms", "mail"}})), 0)
			is(w, "other types", facts(w.explain(id).Reasons), []reason{{Code: "no_worker_for_type", Queue: "default", Type: "report",
				Types: []string{"mail", "sms"}}})
			is(w, "of the queue", w.explainQueue("default").IdleTypes, []idleType{{"report", 1}})

			got := w.claimBeside(claimCall{Queues: []string{"default"}, Types: []string{"pdf"}, Wait: minute})
			is(w, "one that waits for another type", facts(w.explain(id).Reasons), []reason{{Code: "no_worker_for_type", Queue: "default",
				Type: "report", Types: []string{"mail", "pdf", "sms"}}})
			is(w, "its claims", len(got.answer(minute)), 0)

			c := w.one(claimCall{Queues: []string{"default"}, Types: []string{"report"}, Lease: hour})
			second := w.id(spec{Type: "report"})
			claimed := w.now()
			is(w, "no free slot", facts(w.explain(second).Reasons), []reason{{Code: "workers_busy", Queue: "default", Since: claimed}})
			w.pass(6 * minute)
			reasons := w.explain(second).Reasons
			is(w, "held by one who is not heard of any more", []string{reasons[0].Code, reasons[0].Queue},
				[]string{"workers_unknown", "default"})
			w.ack(c)
			is(w, "nobody any more", facts(w.explain(second).Reasons), []reason{{Code: "no_worker", Queue: "default"}})
		}},
		{name: "explain: a queue whose tasks are delayed", tell: func(w *world) {
			w.enqueue(spec{Delay: 2 * hour})
			w.enqueue(spec{Delay: hour})
			is(w, "the queue", w.explainQueue("default"), queueExplanation{Queue: "default", Waiting: 2, NextDue: w.at(hour)})
		}},
		{name: "explain: unknown tasks and queues", tell: func(w *world) {
			_, err := w.api.Explain(w.ctx(), task.NewID(dataShard, 1, 1).String())
			w.refused("explain", err, refusal{Code: "not_found"})
			_, err = w.api.Explain(w.ctx(), "42")
			w.refused("explain", err, refusal{Code: "invalid_argument", Field: "task_id"})
			_, err = w.api.ExplainQueue(w.ctx(), "mail")
			w.refused("explain queue", err, refusal{Code: "not_found"})
		}},
		ofTheGateway(story{name: "explain: a worker of queues in two shards waits in both", shards: 2, tell: func(w *world) {
			w.enqueue(spec{Queue: "a"})
			id := w.id(spec{Queue: "b", Type: "report"})
			got := w.claimBeside(claimCall{Queues: []string{"a", "b"}, Types: []string{"mail"}, Wait: 10 * second})
			is(w, "the reasons", facts(w.explain(id).Reasons), []reason{{Code: "no_worker_for_type", Queue: "b", Type: "report",
				Types: []string{"mail"}}})
			is(w, "its claims", len(got.answer(10*second)), 0)
		}}),
		ofTheGateway(story{name: "explain: a queue in several shards is explained as one", shards: 2, tell: func(w *world) {
			w.put("hot", settings{})
			ok[queueInfo](w)(w.api.Pause(w.ctx(), "hot", pause{Reason: "deploy"}))
			since := w.now()
			_, err := w.testNode.router.Queues.Spread(w.ctx(), task.Author{}, namespace, "hot", queues.SpreadTarget{Parts: 2})
			must(w.T, err)
			for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
				w.enqueue(spec{Queue: "hot", Key: key})
			}
			q := w.explainQueue("hot")
			is(w, "the reasons, which are those of both shards", facts(q.Reasons),
				[]reason{{Code: "queue_paused", Queue: "hot", Cause: "deploy",
					Since: since, Count: 8},
					{Code: "no_worker", Queue: "hot", Count: 8}})
			is(w, "the tasks", []int64{q.Ready, q.Claimable}, []int64{8, 0})
		}}),
	})
}

func (w *world) explain(id string) explanation {
	w.Helper()
	return ok[explanation](w)(w.api.Explain(w.ctx(), id))
}

func (w *world) explainQueue(name string) queueExplanation {
	w.Helper()
	return ok[queueExplanation](w)(w.api.ExplainQueue(w.ctx(), name))
}

// facts returns reasons without their sentences, of which each must have two, and with times to the millisecond, since
// tokens are late by rounding.
func facts(reasons []reason) []reason {
	for i := range reasons {
		r := &reasons[i]
		if r.Detail == "" || r.Change == "" {
			r.Code += " without words"
		}
		r.Detail, r.Change = "", ""
		r.Until = r.Until.Truncate(time.Millisecond)
	}
	return reasons
}

func byID(running []runner) {
	slices.SortFunc(running, func(a, b runner) int { return cmp.Compare(a.ID, b.ID) })
}

func (d *direct) Explain(ctx context.Context, id string) (explanation, error) {
	parsed, err := task.ParseID(id)
	if err != nil {
		return explanation{}, refused(task.Invalid("task_id", "%v", err))
	}
	e, _, err := d.broker.Explain(ctx, namespace, parsed)
	if err != nil {
		return explanation{}, refused(err)
	}
	return explanation{ID: id, State: e.State.String(), Status: e.State.Status(), Queue: e.Queue, Type: e.Type, Key: e.Key,
		Reasons: reasonsDirect(e.Reasons, e.Queue)}, nil
}

func (d *direct) ExplainQueue(ctx context.Context, name string) (queueExplanation, error) {
	e, _, err := d.broker.ExplainQueue(ctx, dataShard, namespace, name)
	if err != nil {
		return queueExplanation{}, refused(err)
	}
	out := queueExplanation{Queue: name, Ready: e.Ready, Claimable: e.Claimable, Claimed: e.Claimed, Waiting: e.Waiting,
		Reasons: reasonsDirect(e.Reasons, name), NextDue: when(e.NextDue), OldestReady: when(e.OldestReady), Partial: e.Partial}
	for _, k := range e.Keys {
		out.Keys = append(out.Keys, heldKey{k.Key, string(k.Code), k.Tasks, when(k.Until)})
	}
	for _, t := range e.Idle {
		out.IdleTypes = append(out.IdleTypes, idleType(t))
	}
	return out, nil
}

func reasonsDirect(list []broker.Reason, queue string) (out []reason) {
	for _, r := range list {
		one := reason{Code: string(r.Code), Detail: r.Detail, Change: r.Change, Since: when(r.Since), Until: when(r.Until),
			Type: r.Type, Key: r.Key, Cause: r.Cause, Error: r.Error, Limit: r.Limit, Types: r.Types, Count: r.Count, More: r.More}
		switch r.Code {
		case task.WhyOnItsWay:
			one.Queue = r.Queue
		case task.WhyNoLeader, task.WhyRunning, task.WhyEnded, task.WhyNotDue:
		default:
			one.Queue = queue
		}
		if r.Rate.IsSet() {
			one.Rate = &rate{r.Rate.Limit, span(r.Rate.Period), r.Rate.Capacity()}
		}
		for _, t := range r.Running {
			one.Running = append(one.Running, runner{t.ID.String(), t.Worker, when(t.Since), when(t.Until)})
		}
		out = append(out, one)
	}
	return out
}

func (d *rest) Explain(ctx context.Context, id string) (e explanation, err error) {
	err = d.query(ctx, "GET", taskPath(id, "/explain"), nil, &e)
	return e, err
}

func (d *rest) ExplainQueue(ctx context.Context, name string) (e queueExplanation, err error) {
	err = d.query(ctx, "GET", queuePath(name, "/explain"), nil, &e)
	// JSON must have these as lists even if empty; other APIs omit them.
	if len(e.Reasons) == 0 {
		e.Reasons = nil
	}
	if len(e.Keys) == 0 {
		e.Keys = nil
	}
	if len(e.IdleTypes) == 0 {
		e.IdleTypes = nil
	}
	return e, err
}

func (d *rpc) Explain(ctx context.Context, id string) (explanation, error) {
	a, err := ask(ctx, d.producer.ExplainTask, &pawlv1.ExplainTaskRequest{TaskId: id})
	if err != nil {
		return explanation{}, err
	}
	return explanation{ID: a.GetTaskId(), State: task.State(a.GetState()).String(), Status: task.State(a.GetState()).Status(),
		Queue: a.GetQueue(), Type: a.GetType(), Key: a.GetKey(), Reasons: reasonsRPC(a.GetReasons())}, nil
}

func (d *rpc) ExplainQueue(ctx context.Context, name string) (queueExplanation, error) {
	a, err := ask(ctx, d.operator.ExplainQueue, &pawlv1.ExplainQueueRequest{Queue: name})
	if err != nil {
		return queueExplanation{}, err
	}
	out := queueExplanation{Queue: a.GetQueue(), Ready: a.GetReady(), Claimable: a.GetClaimable(), Claimed: a.GetClaimed(),
		Waiting: a.GetWaiting(), Reasons: reasonsRPC(a.GetReasons()), NextDue: timeOf(a.GetNextDue()),
		OldestReady: timeOf(a.GetOldestReadyAt()), Partial: a.GetPartial()}
	for _, k := range a.GetKeys() {
		out.Keys = append(out.Keys, heldKey{k.GetKey(), k.GetCode(), k.GetTasks(), timeOf(k.GetUntil())})
	}
	for _, t := range a.GetIdleTypes() {
		out.IdleTypes = append(out.IdleTypes, idleType{t.GetType(), t.GetTasks()})
	}
	return out, nil
}

func reasonsRPC(list []*pawlv1.Reason) (out []reason) {
	for _, r := range list {
		one := reason{Code: r.GetCode(), Detail: r.GetDetail(), Change: r.GetChange(), Since: timeOf(r.GetSince()),
			Until: timeOf(r.GetUntil()), Queue: r.GetQueue(), Type: r.GetType(), Key: r.GetKey(), Cause: r.GetCause(), Error: r.GetError(),
			Limit: int(r.GetLimit()), Types: r.GetTypes(), Count: r.GetCount(), More: r.GetMore(), Shard: r.GetShard()}
		if rt := r.GetRate(); rt != nil {
			one.Rate = &rate{int(rt.GetLimit()), span(rt.GetPeriod().AsDuration()), int(rt.GetBurst())}
		}
		for _, t := range r.GetRunning() {
			one.Running = append(one.Running, runner{t.GetTaskId(), t.GetWorker(), timeOf(t.GetSince()), timeOf(t.GetUntil())})
		}
		out = append(out, one)
	}
	return out
}

func (d *sdk) Explain(ctx context.Context, id string) (explanation, error) {
	e, err := d.admin().Tasks().Explain(ctx, id)
	if err != nil {
		return explanation{}, refusedBySDK(err)
	}
	return explanation{ID: e.TaskID, State: string(e.State), Status: string(e.Status), Queue: e.Queue, Type: e.Type, Key: e.Key,
		Reasons: reasonsSDK(e.Reasons)}, nil
}

func (d *sdk) ExplainQueue(ctx context.Context, name string) (queueExplanation, error) {
	e, err := d.admin().Queues().Explain(ctx, name)
	if err != nil {
		return queueExplanation{}, refusedBySDK(err)
	}
	out := queueExplanation{Queue: e.Queue, Ready: e.Ready, Claimable: e.Claimable, Claimed: e.Claimed, Waiting: e.Waiting,
		Reasons: reasonsSDK(e.Reasons), NextDue: e.NextDue, OldestReady: e.OldestReadyAt, Partial: e.Partial}
	for _, k := range e.Keys {
		out.Keys = append(out.Keys, heldKey{k.Key, string(k.Code), k.Tasks, k.Until})
	}
	for _, t := range e.UnservedTypes {
		out.IdleTypes = append(out.IdleTypes, idleType(t))
	}
	return out, nil
}

func reasonsSDK(list []admin.Reason) (out []reason) {
	for _, r := range list {
		one := reason{Code: string(r.Code), Detail: r.Detail, Change: r.Change, Since: r.Since, Until: r.Until, Queue: r.Queue,
			Type: r.Type, Key: r.Key, Cause: r.Cause, Error: r.Error, Limit: r.Limit, Types: r.Types, Count: r.Count,
			More: r.More, Shard: r.Shard}
		if r.Rate != (admin.RateLimit{}) {
			one.Rate = &rate{r.Rate.Limit, span(r.Rate.Period), r.Rate.Burst}
		}
		for _, t := range r.Running {
			one.Running = append(one.Running, runner{t.TaskID, t.Worker, t.Since, t.Until})
		}
		out = append(out, one)
	}
	return out
}

func (d *roundRobin) Explain(ctx context.Context, id string) (explanation, error) {
	return d.next().Explain(ctx, id)
}
func (d *roundRobin) ExplainQueue(ctx context.Context, name string) (queueExplanation, error) {
	return d.next().ExplainQueue(ctx, name)
}

package conformance

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/admin"
	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
)

// breaker is a circuit breaker's rule. In requests zero fields are omitted.
type breaker struct {
	Off         bool `json:"off,omitempty"`
	FailureRate int  `json:"failure_rate,omitempty"`
	Window      span `json:"window,omitempty"`
	MinAttempts int  `json:"min_attempts,omitempty"`
	Hold        span `json:"hold,omitempty"`
	MaxHold     span `json:"max_hold,omitempty"`
	Probes      int  `json:"probes,omitempty"`
}

// broken is a breaker that is not closed.
type broken struct {
	Type     string    `json:"type"`
	State    string    `json:"state"`
	Reason   string    `json:"reason"`
	Since    time.Time `json:"since"`
	Until    time.Time `json:"until"`
	Attempts int       `json:"attempts"`
	Failed   int       `json:"failed"`
	Window   span      `json:"window"`
	Error    string    `json:"error"`
	Opened   int       `json:"opened"`
	Passed   int       `json:"passed"`
	Probes   int       `json:"probes"`
	Probe    string    `json:"probe_task_id"`
}

type breakers interface {
	CloseBreaker(ctx context.Context, queue, typ, reason string) (queueInfo, error)
}

func TestBreakers(t *testing.T) {
	quick := &breaker{FailureRate: 50, Window: minute, MinAttempts: 2, Hold: 10 * second, MaxHold: 15 * second, Probes: 2}
	tellAll(t, []story{
		{name: "breaker rules are returned as set, with defaults", tell: func(w *world) {
			all := defaultSettings
			all.Breaker = &breaker{FailureRate: 50, Window: minute, MinAttempts: 20, Hold: 30 * second, MaxHold: 10 * minute, Probes: 3}
			all.Breakers = map[string]breaker{"sms": {Off: true},
				"fax": {FailureRate: 90, Window: 10 * second, MinAttempts: 20, Hold: hour, MaxHold: hour, Probes: 3}}
			made := w.put("mail", settings{Breaker: &breaker{FailureRate: 50},
				Breakers: map[string]breaker{"sms": {Off: true}, "fax": {FailureRate: 90, Window: 10 * second, Hold: hour}}})
			is(w, "the settings", made.Settings, all)
			is(w, "as they are read", w.queue("mail"), made)
			is(w, "without them", w.put("mail", settings{}).Settings, defaultSettings)
		}},
		{name: "a failing type is held, probed one task at a time, and resumed after a success", tell: func(w *world) {
			w.put("default", settings{Breaker: quick})
			w.batch([]spec{{Type: "mail"}, {Type: "mail"}, {Type: "mail"}, {Type: "mail"}, {Type: "mail"}, {Type: "sms"}})
			c := w.claims(claimCall{Queues: []string{"default"}, Types: []string{"mail"}, Max: 2})
			w.ack(c[0])
			w.fail(c[1], failing{Message: "no route", Outcome: "dead"})
			open := broken{Type: "mail", State: "open", Reason: `1 of 2 attempts failed within 1m0s, the last with "no route"`,
				Since: w.now(), Until: w.at(10 * second), Attempts: 2, Failed: 1, Window: minute, Error: "no route", Opened: 1, Probes: 2}
			q := w.queue("default")
			is(w, "the breaker", q.Breakers, []broken{open})
			is(w, "how many are open", q.BreakersOpen, 1)
			is(w, "the depth", q.Depth, depth{Ready: 4, Held: 3, Dead: 1})
			is(w, "what runs", typesOf(w.claims(from("default").most(9))), []string{"sms"})
			why := []reason{{Code: "breaker_open", Queue: "default", Type: "mail", Cause: open.Reason, Error: "no route", Since: open.Since,
				Until: open.Until}}
			ids := w.list(filter{Queue: "default", States: []string{"ready"}})
			is(w, "why not", facts(w.explain(ids[0].ID).Reasons)[:1], why)
			why[0].Count = 3
			is(w, "of the queue", facts(w.explainQueue("default").Reasons)[:1], why)

			w.pass(10 * second)
			probe := w.claims(from("default").most(9))
			is(w, "the probe", typesOf(probe), []string{"mail"})
			probing := open
			probing.State, probing.Until, probing.Probe = "probing", time.Time{}, probe[0].ID
			is(w, "while it is tried", w.queue("default").Breakers, []broken{probing})
			w.nothing()
			w.ack(probe[0])
			probe = w.claims(from("default").most(9))
			is(w, "the next", len(probe), 1)
			w.ack(probe[0])
			is(w, "no breaker is open", w.queue("default").Breakers, nil)
			is(w, "the rest", len(w.claims(from("default").most(9))), 1)
		}},
		{name: "a waiting claim gets the probe when the hold ends", tell: func(w *world) {
			w.put("default", settings{Breaker: quick})
			w.batch([]spec{{Type: "mail"}, {Type: "mail"}, {Type: "mail"}})
			for _, c := range w.claims(from("default").most(2)) {
				w.fail(c, failing{Outcome: "dead"})
			}
			call := from("default").most(9)
			call.Wait = minute
			got := w.claimBeside(call).answer(10 * second)
			is(w, "the probe", len(got), 1)
			w.fail(got[0], failing{Outcome: "dead", Message: "still down"})
			is(w, "after the probe", reasonsOf(w.queue("default")),
				[]string{`2 of 2 attempts failed within 1m0s, then 1 probe, the last with "still down"`})
		}},
		{name: "an operator closes a breaker", tell: func(w *world) {
			w.put("default", settings{Breaker: quick})
			w.batch([]spec{{Type: "mail"}, {Type: "mail"}, {Type: "mail"}})
			for _, c := range w.claims(from("default").most(2)) {
				w.fail(c, failing{Outcome: "dead"})
			}
			w.nothing()
			is(w, "another type", ok[queueInfo](w)(w.api.CloseBreaker(w.ctx(), "default", "sms", "")).BreakersOpen, 1)
			is(w, "the type", ok[queueInfo](w)(w.api.CloseBreaker(w.ctx(), "default", "mail", "it is back")).BreakersOpen, 0)
			is(w, "all, of which none is open", ok[queueInfo](w)(w.api.CloseBreaker(w.ctx(), "default", "", "")).BreakersOpen, 0)
			is(w, "the rest", len(w.claims(from("default").most(9))), 1)
			_, err := w.api.CloseBreaker(w.ctx(), "nowhere", "", "")
			w.refused("of a queue that is not there", err, refusal{Code: "not_found"})
		}},
	})
}

// TestOnlyListedTypes: a task is never given to a worker that does not list its type, whether by a claim, a waiting
// claim, a claim repeated with its claim key, or a claim on several queues; and whether all types run, or one is held
// or being probed.
func TestOnlyListedTypes(t *testing.T) {
	tellAll(t, []story{{name: "claims get only the types that they list", tell: func(w *world) {
		w.put("a", settings{Breaker: &breaker{FailureRate: 100, MinAttempts: 1, Hold: 10 * second, Probes: 3}})
		for range 6 {
			w.batch([]spec{{Queue: "a", Type: "x"}, {Queue: "a", Type: "y", Key: "k"}, {Queue: "b", Type: "z"}, {Queue: "a", Type: "z"}})
		}
		listing := func(types ...string) claimCall { return claimCall{Queues: []string{"a", "b"}, Types: types, Max: 3} }
		listed := func(when string) {
			w.Helper()
			for _, call := range []claimCall{listing("x"), listing("z"), listing("y", "nothing")} {
				for _, c := range w.claims(call) {
					if !slices.Contains(call.Types, c.Type) {
						w.Errorf("%s: a claim of types %v got a task of type %q", when, call.Types, c.Type)
					}
					w.release(c, 0)
				}
			}
			is(w, when+", a type that is not there", len(w.claims(listing("nothing"))), 0)
			keyed := listing("z")
			keyed.Key = "the same " + when
			first := w.claims(keyed)
			is(w, when+", a claim with its key", typesOf(first), []string{"z", "z", "z"})
			is(w, when+", repeated", typesOf(w.claims(keyed)), []string{"z", "z", "z"})
			for _, c := range first {
				w.release(c, 0)
			}
		}
		listed("when all types run")
		w.fail(w.one(listing("x").most(1)), failing{Outcome: "dead"})
		is(w, "what is open", reasonsOf(w.queue("a")), []string{"1 of 1 attempt failed within 1m0s"})
		listed("when one is held")
		w.pass(10 * second)
		listed("when one is on trial")
		waits := listing("nothing", "new")
		waits.Wait = minute
		beside := w.claimBeside(waits)
		w.pass(5 * second)
		w.enqueue(spec{Queue: "a", Type: "new"})
		is(w, "one that waits", typesOf(beside.answer(5*second)), []string{"new"})
	}}})
}

// TestStreamOfListedTypes is TestOnlyListedTypes for a worker's stream.
func TestStreamOfListedTypes(t *testing.T) {
	for _, rule := range []*pawlv1.Breaker{nil, {FailureRate: 100, MinAttempts: 1, Hold: durationpb.New(10 * time.Second), Probes: 1}} {
		synctest.Test(t, func(t *testing.T) {
			d := newRPC(t, build(t, 1, t.TempDir()))
			ctx := t.Context()
			_, err := d.operator.PutQueue(ctx, &pawlv1.PutQueueRequest{Queue: "q", Settings: &pawlv1.QueueSettings{Breaker: rule}})
			must(t, err)
			stream, err := d.worker.Work(ctx)
			must(t, err)
			must(t, stream.Send(&pawlv1.WorkRequest{Hello: &pawlv1.WorkHello{Queues: []*pawlv1.QueueShare{{Queue: "q"}},
				Types: []string{"x", "y"}, Worker: "w"}, Grant: 100}))
			for i := range 30 {
				_, err := d.producer.Enqueue(ctx, &pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Queue: new("q"),
					Type: []string{"x", "z", "y"}[i%3]}})
				must(t, err)
			}
			got := map[string]int{}
			for got["x"]+got["y"] < 20 {
				frame, err := stream.Recv()
				must(t, err)
				for _, c := range frame.GetTasks() {
					if got[c.GetType()]++; c.GetType() == "z" {
						t.Fatal("a worker for types x and y got a task of type z")
					}
					outcome := pawlv1.FailOutcome_FAIL_OUTCOME_DISCARD
					if got["x"] == 1 && c.GetType() == "x" { // its breaker opens
						outcome = pawlv1.FailOutcome_FAIL_OUTCOME_DEAD
					}
					_, err := d.worker.Fail(ctx, &pawlv1.FailRequest{TaskId: c.GetTaskId(), ClaimToken: c.GetClaimToken(),
						Outcome: outcome})
					must(t, err)
				}
			}
			synctest.Wait()
			q, err := d.operator.GetQueue(ctx, &pawlv1.GetQueueRequest{Queue: "q"})
			must(t, err)
			if q.GetQueue().GetDepth().GetReady() != 10 || (rule != nil) != (q.GetQueue().GetBreakersOpen() == 1) {
				t.Errorf("at the end the queue is %v", q)
			}
		})
	}
}

func reasonsOf(q queueInfo) (reasons []string) {
	for _, b := range q.Breakers {
		reasons = append(reasons, b.Reason)
	}
	return reasons
}

func typesOf(claimed []claim) (types []string) {
	for _, c := range claimed {
		types = append(types, c.Type)
	}
	return types
}

func (d *direct) CloseBreaker(ctx context.Context, queue, typ, _ string) (queueInfo, error) {
	if _, err := broker.CloseBreakers.Call(ctx, d.broker, broker.BreakersOf{OnQueue: onQueue(queue), Type: typ, Authored: broker.Authored{
		By: directly}}); err != nil {
		return queueInfo{}, refused(err)
	}
	return d.Queue(ctx, queue)
}

func (d *rest) CloseBreaker(ctx context.Context, queue, typ, reason string) (q queueInfo, err error) {
	err = d.call(ctx, "POST", queuePath(queue, "/breakers/close"), fields{}.with(typ != "", "type", typ).with(reason != "", "reason",
		reason),
		&q)
	return q, err
}

func (d *rpc) CloseBreaker(ctx context.Context, queue, typ, reason string) (queueInfo, error) {
	a, err := ask(ctx, d.operator.CloseBreaker, &pawlv1.CloseBreakerRequest{Queue: queue, Type: text(typ), Reason: reason})
	return queueProto(a.GetQueue()), err
}

func (d *sdk) CloseBreaker(ctx context.Context, queue, typ, reason string) (queueInfo, error) {
	return d.queue(d.admin().WithReason(reason).Queues().CloseBreaker(ctx, queue, typ))
}

func (d *roundRobin) CloseBreaker(ctx context.Context, queue, typ, reason string) (queueInfo, error) {
	return d.next().CloseBreaker(ctx, queue, typ, reason)
}

// task returns the rule with its defaults.
func (b *breaker) task() (out task.Breaker) {
	if b == nil || b.Off {
		return out
	}
	out = task.Breaker{FailureRate: b.FailureRate, Window: b.Window.std(), MinAttempts: b.MinAttempts, Hold: b.Hold.std(),
		MaxHold: b.MaxHold.std(), Probes: b.Probes}
	out.Fill()
	return out
}

func breakerOf(b task.Breaker) *breaker {
	if !b.IsSet() {
		return &breaker{Off: true}
	}
	return &breaker{FailureRate: b.FailureRate, Window: span(b.Window), MinAttempts: b.MinAttempts, Hold: span(b.Hold),
		MaxHold: span(b.MaxHold), Probes: b.Probes}
}

// breakersOf adds the rules as the broker has them.
func (s *settings) breakersOf(t task.Settings) {
	if t.Breaker.IsSet() {
		s.Breaker = breakerOf(t.Breaker)
	}
	for typ, rule := range t.Breakers {
		s.breakerOf(typ, *breakerOf(rule))
	}
}

func (s *settings) breakerOf(typ string, rule breaker) {
	if s.Breakers == nil {
		s.Breakers = map[string]breaker{}
	}
	s.Breakers[typ] = rule
}

// taskBreakers sets the rules as the broker takes them.
func (s *settings) taskBreakers(out *task.Settings) {
	out.Breaker = s.Breaker.task()
	for typ, rule := range s.Breakers {
		if out.Breakers == nil {
			out.Breakers = map[string]task.Breaker{}
		}
		out.Breakers[typ] = rule.task()
	}
}

func brokenOf(infos []broker.BreakerInfo) (out []broken) {
	for _, i := range infos {
		b := broken{Type: i.Type, State: i.State.String(), Reason: i.Reason(), Since: when(i.Since), Until: when(i.Until),
			Attempts: i.Attempts, Failed: i.Failed, Window: span(i.Window), Error: i.Error, Opened: i.Opened,
			Passed: i.Passed, Probes: i.Probes}
		if i.Probe != (task.ID{}) {
			b.Probe = i.Probe.String()
		}
		out = append(out, b)
	}
	return out
}

func (b *breaker) proto() *pawlv1.Breaker {
	if b == nil {
		return nil
	}
	return &pawlv1.Breaker{Off: b.Off, FailureRate: int32(b.FailureRate), Window: spanProto(b.Window), MinAttempts: int32(b.MinAttempts),
		Hold: spanProto(b.Hold), MaxHold: spanProto(b.MaxHold), Probes: int32(b.Probes)}
}

func (s *settings) protoBreakers(p *pawlv1.QueueSettings) {
	p.Breaker = s.Breaker.proto()
	for typ, rule := range s.Breakers {
		if p.Breakers == nil {
			p.Breakers = map[string]*pawlv1.Breaker{}
		}
		p.Breakers[typ] = rule.proto()
	}
}

func breakerProto(p *pawlv1.Breaker) breaker {
	return breaker{Off: p.GetOff(), FailureRate: int(p.GetFailureRate()), Window: span(p.GetWindow().AsDuration()),
		MinAttempts: int(p.GetMinAttempts()), Hold: span(p.GetHold().AsDuration()), MaxHold: span(p.GetMaxHold().AsDuration()),
		Probes: int(p.GetProbes())}
}

// breakersProto adds the breakers in a gRPC answer.
func (q *queueInfo) breakersProto(p *pawlv1.Queue) {
	if rule := p.GetSettings().GetBreaker(); rule != nil {
		q.Settings.Breaker = new(breakerProto(rule))
	}
	for typ, rule := range p.GetSettings().GetBreakers() {
		q.Settings.breakerOf(typ, breakerProto(rule))
	}
	for _, b := range p.GetBreakers() {
		q.Breakers = append(q.Breakers, broken{b.GetType(), b.GetState(), b.GetReason(), timeOf(b.GetSince()), timeOf(b.GetUntil()),
			int(b.GetAttempts()), int(b.GetFailed()), span(b.GetWindow().AsDuration()), b.GetError(), int(b.GetOpened()),
			int(b.GetPassed()), int(b.GetProbes()), b.GetProbeTaskId()})
	}
	q.BreakersOpen = int(p.GetBreakersOpen())
}

func (b *breaker) sdk() *admin.Breaker {
	if b == nil {
		return nil
	}
	return &admin.Breaker{Off: b.Off, FailureRate: b.FailureRate, Window: b.Window.std(), MinAttempts: b.MinAttempts, Hold: b.Hold.std(),
		MaxHold: b.MaxHold.std(), Probes: b.Probes}
}

func (s *settings) sdkBreakers(out *admin.QueueSettings) {
	out.Breaker = s.Breaker.sdk()
	for typ, rule := range s.Breakers {
		if out.Breakers == nil {
			out.Breakers = map[string]admin.Breaker{}
		}
		out.Breakers[typ] = *rule.sdk()
	}
}

func breakerSDK(b admin.Breaker) breaker {
	return breaker{b.Off, b.FailureRate, span(b.Window), b.MinAttempts, span(b.Hold), span(b.MaxHold), b.Probes}
}

// breakersSDK adds the breakers in an SDK answer.
func (q *queueInfo) breakersSDK(p *admin.Queue) {
	if p.Settings.Breaker != nil {
		q.Settings.Breaker = new(breakerSDK(*p.Settings.Breaker))
	}
	for typ, rule := range p.Settings.Breakers {
		q.Settings.breakerOf(typ, breakerSDK(rule))
	}
	for _, b := range p.Breakers {
		q.Breakers = append(q.Breakers, broken{b.Type, string(b.State), b.Reason, b.Since, b.Until, b.Attempts, b.Failed,
			span(b.Window), b.Error, b.Opened, b.Passed, b.Probes, b.Probe})
	}
	q.BreakersOpen = p.BreakersOpen
}

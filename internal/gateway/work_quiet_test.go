package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/system/workers"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// one returns the only worker in a fake's registry.
func one(t *testing.T, f *fake) registry.Info {
	t.Helper()
	all := f.registry.List(registry.Query{Namespace: "default", Limit: 9}).Workers
	if len(all) != 1 {
		t.Fatalf("the registry has %d workers, want 1: %+v", len(all), all)
	}
	return all[0]
}

// steer makes the gateway quiet a worker, or resume it.
func steer(t *testing.T, g *Gateway, id string, quiet bool) *pawlv1.Worker {
	t.Helper()
	ctx, _ := callinfo.Begin(context.Background(), "grpc", "test")
	if quiet {
		got, err := g.services.workerRegistry.QuietWorker(ctx, &pawlv1.QuietWorkerRequest{WorkerId: id, Reason: "deploy"})
		if err != nil {
			t.Fatal(err)
		}
		return got.Worker
	}
	got, err := g.services.workerRegistry.ResumeWorker(ctx, &pawlv1.ResumeWorkerRequest{WorkerId: id})
	if err != nil {
		t.Fatal(err)
	}
	return got.Worker
}

func TestStreamWorkersAreNotified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		h := hello("q", "r")
		h.Host, h.Pid, h.Version, h.Instance, h.Types = "host-1", 4711, "1.2", "i-1", []string{"a"}
		s := startWorker(t, f, &pawlv1.WorkRequest{Hello: h, Grant: 3})
		s.enqueue("q", 2)
		tasks := s.tasks(2)
		synctest.Wait()
		w := one(t, f)
		if w.ID != "i-1" || w.Name != "w1" || w.Host != "host-1" || w.PID != 4711 || !w.Stream || w.Slots != 3 || w.RunningNow != 2 ||
			len(w.Queues) != 2 || w.Running[0].Type != "a" || w.Running[0].Queue != "q" || w.Running[0].LeaseUntil.IsZero() {
			t.Errorf("the worker is registered as %+v", w)
		}
		s.send(&pawlv1.WorkRequest{Settle: ack(tasks[0])})
		s.hear()
		if w := one(t, f); w.RunningNow != 1 || w.Slots != 2 {
			t.Errorf("after an ack the worker runs %d tasks and has %d slots, want 1 and 2", w.RunningNow, w.Slots)
		}
		s.send(&pawlv1.WorkRequest{Quiet: true})
		synctest.Wait()
		if w := one(t, f); !w.Draining {
			t.Error("a draining worker is not registered as draining")
		}
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
		if left := f.registry.List(registry.Query{Namespace: "default", Limit: 9}).Workers; len(left) != 0 {
			t.Errorf("a worker that left is still registered: %+v", left)
		}
	})
}

func TestWorkStaysQuietUntilItResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := startWorker(t, f, &pawlv1.WorkRequest{Hello: hello("q"), Grant: 3})
		s.enqueue("q", 1)
		running := s.tasks(1)
		id := one(t, f).ID
		if w := steer(t, s.g, id, true); w.GetQuiet().GetReason() != "deploy" || w.GetRunning() != 1 {
			t.Errorf("QuietWorker = %v", w)
		}
		word := s.hear().GetQuiet()
		if !word.GetQuiet() || word.GetReason() != "deploy" || word.GetVersion() != 1 {
			t.Errorf("the worker got %v, want quiet with its reason", word)
		}
		s.enqueue("q", 5)
		s.quietFor(3 * time.Minute)
		s.send(&pawlv1.WorkRequest{Settle: ack(running...), Grant: 1})
		if r := s.hear(); len(r.GetSettled().GetAcks()) != 1 {
			t.Errorf("settle of a running task got %v", r)
		}
		s.quietFor(time.Minute)
		steer(t, s.g, id, false)
		if word := s.hear().GetQuiet(); word == nil || word.GetQuiet() {
			t.Errorf("the worker got %v, want resume", word)
		}
		s.tasks(3)
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// An order stays to be sent until its sender holds the lock for sending: otherwise tasks that are sent meanwhile overtake a resume.
func TestTasksDoNotOvertakeOrders(t *testing.T) {
	s := &pipeStream{ctx: t.Context(), out: make(chan *pawlv1.WorkResponse, 1)}
	w := &work{stream: s, quiet: quietState{notice: &pawlv1.QuietNotice{Reason: "deploy"}}}
	w.sending.Lock()
	told := make(chan error)
	go func() { told <- w.notify() }()
	for range 10_000 {
		runtime.Gosched() // notify waits for the lock by then
	}
	if word := w.quiet.takeNotice(); word.GetReason() != "deploy" {
		t.Errorf("another sender finds the order %v, want the one that is not sent yet", word)
	}
	w.sending.Unlock()
	if err := <-told; err != nil || len(s.out) != 0 {
		t.Errorf("notify sent %d frames, error %v; want none", len(s.out), err)
	}
}

// A worker that reconnects gets only the quiet state that it does not know yet.
func TestReconnectedWorkerStaysQuiet(t *testing.T) {
	for _, c := range []struct {
		knows int64
		rowAt uint64 // version of the row; 0: there is none
		hears bool
		quiet bool
	}{{0, 7, true, true}, {7, 7, false, true}, {6, 7, true, true}, {6, 0, true, false}, {0, 0, false, false}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.registry.SetQuiet(9, true, nil)
			if c.rowAt != 0 {
				f.registry.SetQuiet(9, true, []registry.QuietChange{{Namespace: "default", ID: "i-1",
					Quiet: &registry.Quiet{Until: time.Now().Add(time.Hour), Version: c.rowAt}}})
			}
			h := hello("q")
			h.Instance, h.QuietVersion = "i-1", c.knows
			s := startWorker(t, f, &pawlv1.WorkRequest{Hello: h, Grant: 1})
			if c.hears {
				if word := s.hear().GetQuiet(); word == nil || word.GetQuiet() != c.quiet {
					t.Errorf("%+v: the worker got %v", c, word)
				}
			}
			s.enqueue("q", 1)
			if c.quiet {
				s.quietFor(time.Minute)
			} else {
				s.tasks(1)
			}
			if err := s.end(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestInstancesAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hello("q")
		h.Instance = "a/b"
		s := startWorker(t, newFake(), &pawlv1.WorkRequest{Hello: h})
		if err := <-s.ended; !errors.Is(err, task.ErrInvalidArgument) {
			t.Errorf("instance with a slash: %v, want an invalid argument", err)
		}
		s.g.Shutdown(context.Background())
	})
}

// claimBy claims one task by a unary call.
func claimBy(g *Gateway, worker, key string, wait time.Duration) (*pawlv1.ClaimResponse, error) {
	ctx, _ := callinfo.Begin(context.Background(), "grpc", "test")
	return g.services.worker.Claim(ctx, &pawlv1.ClaimRequest{Queues: []*pawlv1.QueueShare{{Queue: "q"}}, Worker: worker, ClaimKey: new(key),
		Wait: durationpb.New(wait)})
}

func TestClaimersBecomeQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := &workerClient{t: t, f: f, g: newGateway(f)}
		defer s.g.Shutdown(context.Background())
		s.enqueue("q", 1)
		got, err := claimBy(s.g, "w1", "k1", 0)
		if err != nil || len(got.Tasks) != 1 {
			t.Fatal(got, err)
		}
		w := one(t, f)
		if w.Stream || w.RunningNow != 1 || w.Name != "w1" {
			t.Errorf("the claimer is registered as %+v", w)
		}

		// A call that waits when its worker becomes quiet is answered immediately.
		type answer struct {
			r   *pawlv1.ClaimResponse
			err error
		}
		answers := make(chan answer, 1)
		ask := func(wait time.Duration) {
			go func() {
				r, err := claimBy(s.g, "w1", "k2", wait)
				answers <- answer{r, err}
			}()
		}
		ask(30 * time.Second)
		synctest.Wait()
		began := time.Now()
		steer(t, s.g, w.ID, true)
		if a := <-answers; a.err != nil || !a.r.Quiet || a.r.QuietReason != "deploy" || time.Since(began) != 0 {
			t.Errorf("waiting claim of a worker that became quiet = %v, %v after %v", a.r, a.err, time.Since(began))
		}

		// The next call waits as long as requested and gets nothing. The retry of a call that got something gets the same.
		s.enqueue("q", 1)
		ask(30 * time.Second)
		if a := <-answers; a.err != nil || !a.r.Quiet || len(a.r.Tasks) != 0 || time.Since(began) != 30*time.Second {
			t.Errorf("claim of a quiet worker = %v, %v after %v", a.r, a.err, time.Since(began))
		}
		if again, err := claimBy(s.g, "w1", "k1", 0); err != nil || len(again.Tasks) != 1 ||
			again.Tasks[0].ClaimToken != got.Tasks[0].ClaimToken {
			t.Errorf("repeated claim of a quiet worker = %v, %v", again, err)
		}

		// A worker that is resumed while it waits gets tasks.
		ask(30 * time.Second)
		time.Sleep(10 * time.Second)
		steer(t, s.g, w.ID, false)
		if a := <-answers; a.err != nil || a.r.Quiet || len(a.r.Tasks) != 1 {
			t.Errorf("claim of a resumed worker = %v, %v", a.r, a.err)
		}
		for _, c := range got.Tasks {
			ctx, _ := callinfo.Begin(context.Background(), "grpc", "test")
			if _, err := (s.g.services.worker).Ack(ctx, &pawlv1.AckRequest{TaskId: c.TaskId, ClaimToken: c.ClaimToken}); err != nil {
				t.Fatal(err)
			}
		}
		if w := one(t, f); w.RunningNow != 1 {
			t.Errorf("after one of two acks the worker runs %d tasks, want 1", w.RunningNow)
		}
	})
}

// turning is a broker that runs a function during each claim.
type turning struct {
	*fake
	turn func()
}

func (b turning) Claim(ctx context.Context, shard uint32, c broker.ClaimCall, wait time.Duration) ([]broker.Claimed, broker.Stamp, error) {
	got, at, err := b.fake.Claim(ctx, shard, c, 0)
	b.turn()
	if synctest.Wait(); err == nil {
		err = ctx.Err()
	}
	return got, at, err
}

// A quiet worker gets the errors that it would get otherwise: that its earlier claim can't be looked up, or that its
// call has ended. A worker that becomes quiet during a claim gets what the claim returned.
func TestQuietClaimers(t *testing.T) {
	for _, c := range []struct {
		what  string
		key   string
		quiet bool
		wait  time.Duration
		turns func(f *fake, hush, leave func()) // during the first claim
		tasks int
		hears bool // whether it is told that it is quiet
		err   error
	}{
		{"one whose claim can't be looked up", "k", true, time.Minute, func(f *fake, _, _ func()) { f.faults.nth = 1 }, 0,
			false, errPlanted},
		{"one who has gone", "", true, time.Minute, func(_ *fake, _, leave func()) { leave() }, 0, true, context.Canceled},
		{"one who waits", "", true, time.Minute, func(*fake, func(), func()) {}, 0, true, nil},
		{"one who does not", "", true, 0, func(*fake, func(), func()) {}, 0, true, nil},
		{"one who is made quiet, and has gone", "", false, time.Minute, func(_ *fake, hush, leave func()) { hush(); leave() }, 0,
			false, context.Canceled},
		{"one who is made quiet", "", false, time.Minute, func(_ *fake, hush, _ func()) { hush() }, 0, true, nil},
		{"one who is made quiet and resumed at once", "k", false, time.Minute, func(f *fake, hush, _ func()) {
			hush()
			f.registry.SetQuiet(9, true, nil)
		}, 1, false, nil},
		{"one who is made quiet, and does not wait", "", false, 0, func(_ *fake, hush, _ func()) { hush() }, 1, false, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.faults = &faults{}
			g := newGateway(f)
			defer g.Shutdown(context.Background())
			ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
			ctx, leave := context.WithCancel(ctx)
			defer leave()
			put(t, g, ctx, "q", 1, "1")
			me := g.cfg.Registry.Begin(registry.Hello{Namespace: "default", Name: "w"})
			hush := func() {
				f.registry.SetQuiet(9, true, []registry.QuietChange{{Namespace: "default", ID: me.ID(),
					Quiet: &registry.Quiet{Until: time.Now().Add(time.Hour), Version: 1}}})
			}
			turn := sync.OnceFunc(func() { c.turns(f, hush, leave) })
			g.cfg.Broker = turning{f, turn}
			if g.wire(); c.quiet {
				hush()
				turn()
			}
			f.faults.asked = 0
			got, quiet, err := g.claims.takeAs(ctx, me, broker.ClaimCall{Namespace: "default", Queues: []broker.Share{{Queue: "q"}}, Max: 1,
				MaxBytes: 1000, ClaimKey: c.key}, c.wait)
			if len(got) != c.tasks || (quiet != nil) != c.hears || !errors.Is(err, c.err) {
				t.Errorf("%s: %d tasks, quiet %v, %v", c.what, len(got), quiet, err)
			}
		})
	}
}

// A quiet worker gets its earlier claims back, from one shard or several, and the response has the stamps of the shards that were asked.
func TestQuietClaimersFindTheirClaims(t *testing.T) {
	for queues, shards := range map[string]int{"a b c": 3, "b": 1, "b=1 d=2": 1} {
		f, g, ctx := spread()
		f.home["d"] = 2
		put(t, g, ctx, "b", 2, "1")
		r := &pawlv1.ClaimRequest{Queues: shares(queues), Max: 2, ClaimKey: new("k"), Worker: "w"}
		if got := claimText(t, g, ctx, r); got != "bb" {
			t.Fatalf("%s: got %q", queues, got)
		}
		put(t, g, ctx, "b", 1, "1")
		steer(t, g, one(t, f).ID, true)
		ctx, c := callinfo.Begin(t.Context(), "grpc", "test")
		if got := claimText(t, g, ctx, r); got != "bb" || len(stamped(c)) != shards {
			t.Errorf("%s: repeated claim got %q, stamps of shards %v", queues, got, stamped(c))
		}
	}
}

// A token limited to some queues sees only those of a worker, and can't control a worker that also serves others.
func TestWorkersWithinAScope(t *testing.T) {
	f := newFake()
	g := newGateway(f)
	defer g.Shutdown(context.Background())
	f.registry.Join(registry.Hello{Namespace: "default", Name: "both", Queues: []registry.Share{{Queue: "mail"}, {Queue: "sms"}}}, "both",
		0, nil)
	f.registry.Join(registry.Hello{Namespace: "default", Name: "mail", Queues: []registry.Share{{Queue: "mail"}}}, "mail", 0, nil)
	f.registry.Join(registry.Hello{Namespace: "default", Name: "sms", Queues: []registry.Share{{Queue: "sms"}}}, "sms", 0, nil)
	ctx, _ := callinfo.Begin(context.Background(), "grpc", "test")
	ctx = task.WithScope(ctx, task.Scope{Queues: []string{"mail"}})
	list, err := g.services.workerRegistry.ListWorkers(ctx, &pawlv1.ListWorkersRequest{})
	if err != nil || len(list.Items) != 2 || len(list.Items[0].Queues) != 1 {
		t.Errorf("ListWorkers = %v, %v", list, err)
	}
	for id, want := range map[string]error{"mail": nil, "both": &task.Error{Code: task.CodePermissionDenied}, "sms": task.ErrNotFound} {
		if _, err := (g.services.workerRegistry).QuietWorker(ctx, &pawlv1.QuietWorkerRequest{WorkerId: id}); !errors.Is(err, want) {
			t.Errorf("QuietWorker(%q) = %v, want %v", id, err, want)
		}
		if _, err := (g.services.workerRegistry).ResumeWorker(ctx, &pawlv1.ResumeWorkerRequest{WorkerId: id}); !errors.Is(err, want) {
			t.Errorf("ResumeWorker(%q) = %v, want %v", id, err, want)
		}
	}
}

// TestQuietDuration checks that the caller decides how long a worker stays quiet, within limits. The default is 24 hours.
func TestQuietDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		g := newGateway(f)
		defer g.Shutdown(context.Background())
		f.registry.Join(registry.Hello{Namespace: "default", Name: "w", Queues: []registry.Share{{Queue: "mail"}}}, "w", 0, nil)
		ctx, _ := callinfo.Begin(context.Background(), "grpc", "test")
		quiet := func(span *durationpb.Duration) (time.Duration, error) {
			got, err := g.services.workerRegistry.QuietWorker(ctx, &pawlv1.QuietWorkerRequest{WorkerId: "w", For: span})
			return time.Until(got.GetWorker().GetQuiet().GetUntil().AsTime()), err
		}
		for want, said := range map[time.Duration]*durationpb.Duration{24 * time.Hour: nil, time.Minute: durationpb.New(time.Minute),
			720 * time.Hour: durationpb.New(720 * time.Hour)} {
			if left, err := quiet(said); err != nil || left != want {
				t.Errorf("quiet for %v: %v left, %v", said, left, err)
			}
		}
		if _, err := quiet(&durationpb.Duration{Seconds: 90, Nanos: -1}); !strings.Contains(fmt.Sprint(err), "is not a duration") {
			t.Errorf("quiet for an invalid duration: %v", err)
		}
		for _, said := range []*durationpb.Duration{{}, durationpb.New(time.Minute - 1), durationpb.New(720*time.Hour + 1),
			durationpb.New(-time.Hour)} {
			if _, err := quiet(said); !errors.Is(err, task.ErrInvalidArgument) || !strings.Contains(err.Error(), "for") {
				t.Errorf("quiet for %v: %v, want an invalid argument", said, err)
			}
		}
	})
}

// Lost workers are listed with the others unless the caller asks for one kind only, and resuming a quiet worker is logged.
func TestLostWorkersAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		g := newGateway(f)
		defer g.Shutdown(context.Background())
		f.registry.Join(registry.Hello{Namespace: "default", Name: "here", Queues: []registry.Share{{Queue: "q"}}}, "here", 0, func() {})
		nodes := &lostWorkers{known: g.cfg.Workers}
		g.cfg.Workers = nodes
		g.wire()
		ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
		for want, lost := range map[[2]bool]*bool{{true, false}: nil, {true, true}: new(true), {false, false}: new(false)} {
			_, err := g.services.workerRegistry.ListWorkers(ctx, &pawlv1.ListWorkersRequest{Lost: lost})
			if got := [2]bool{nodes.asked.Lost, nodes.asked.OnlyLost}; err != nil || got != want {
				t.Errorf("ListWorkers with lost %v: %v, %v, want %v", lost, got, err, want)
			}
		}
		if _, err := (g.services.workerRegistry).QuietWorker(ctx, &pawlv1.QuietWorkerRequest{WorkerId: "gone"}); !errors.Is(err,
			task.ErrNotFound) || !strings.Contains(err.Error(), "it was lost at") {
			t.Errorf("QuietWorker of a lost worker: %v, want not found", err)
		}
		if _, err := (g.services.workerRegistry).GetWorker(ctx, &pawlv1.GetWorkerRequest{WorkerId: "silent"}); !errors.Is(err,
			task.ErrUnavailable) || !strings.Contains(err.Error(), `node "n9" did not`) {
			t.Errorf("GetWorker of a worker that may be on a silent node: %v, want unavailable", err)
		}
		var lines strings.Builder
		g.cfg.Logger = slog.New(slog.NewTextHandler(&lines, nil))
		g.wire()
		for i, want := range []int{0, 1, 0} {
			lines.Reset()
			if i == 1 {
				steer(t, g, "here", true)
			}
			if steer(t, g, "here", false); strings.Count(lines.String(), "worker resumed") != want {
				t.Errorf("resume %d logged %q", i, lines.String())
			}
		}
	})
}

// steered is a worker registry in which one worker is lost for the given reason. It records whether the worker was resumed.
type steered struct {
	known
	why   error
	was   bool // whether it was quiet
	fails error
	asked bool
}

func (s *steered) Workers(context.Context, registry.Query, string) (list verb.Partial[registry.Page], err error) {
	return list, s.why
}

func (s *steered) ResumeWorker(context.Context, task.Author, workers.Name) (bool, error) {
	s.asked = true
	return s.was, s.fails
}

// Resuming a worker that can't be found fails unless it was quiet, in which case it is known by its id. Nothing is asked about an invalid
// worker id, or about a worker that the caller may not see.
func TestLostWorkersResume(t *testing.T) {
	gone, broken := task.NotFound("worker", "w"), errors.New("a node broke")
	for _, c := range []struct {
		what  string
		id    string
		nodes steered
		scope task.Scope
		asked bool
		err   error
	}{
		{"one that was quiet", "w", steered{why: gone, was: true}, task.Scope{}, true, nil},
		{"one that was not", "w", steered{why: gone}, task.Scope{}, true, gone},
		{"one that may be where nobody answers", "w", steered{why: errPlanted, was: true}, task.Scope{}, true, nil},
		{"one that can't be written", "w", steered{why: gone, was: true, fails: errPlanted}, task.Scope{}, true, errPlanted},
		{"one of which nodes fail to tell", "w", steered{why: broken, was: true}, task.Scope{}, false, broken},
		{"none", "a/b", steered{why: gone, was: true}, task.Scope{}, false, task.ErrInvalidArgument},
		{"one of queues that may be others'", "w", steered{why: gone, was: true}, task.Scope{Queues: []string{"q"}}, false, gone},
	} {
		g := newGateway(newFake())
		g.cfg.Workers = &c.nodes
		g.wire()
		ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
		got, err := g.services.workerRegistry.ResumeWorker(task.WithScope(ctx, c.scope), &pawlv1.ResumeWorkerRequest{WorkerId: c.id})
		if !errors.Is(err, c.err) || c.nodes.asked != c.asked || err == nil && got.GetWorker().GetWorkerId() != c.id {
			t.Errorf("%s: ResumeWorker = %v, %v, asked %t", c.what, got, err, c.nodes.asked)
		}
	}
}

// A running claim ends when an operator makes the worker quiet, and not when an operator resumes it.
func TestQuietEndsRunningClaims(t *testing.T) {
	for _, quiet := range []bool{true, false} {
		f := newFake()
		f.registry.SetQuiet(9, true, nil)
		if quiet {
			f.registry.SetQuiet(9, true, []registry.QuietChange{{Namespace: "default", ID: "i",
				Quiet: &registry.Quiet{Until: time.Now().Add(time.Hour), Version: 3}}})
		}
		h := &quietState{me: f.registry.Join(registry.Hello{Namespace: "default", Name: "w"}, "i", 0, func() {})}
		ctx, done := h.claiming(t.Context())
		if tell := h.refresh(0); tell != quiet || (ctx.Err() != nil) != quiet || h.isQuiet() != quiet {
			t.Errorf("quiet %t: refresh = %t, claim context %v", quiet, tell, ctx.Err())
		}
		done()
		if again, done := h.claiming(t.Context()); (again.Err() != nil) != quiet {
			t.Errorf("quiet %t: context of the next claim %v", quiet, again.Err())
		} else {
			done()
		}
	}
}

// lostWorkers records what is asked. Its worker "gone" is lost, and node n9 does not answer for the worker "silent".
type lostWorkers struct {
	known
	asked registry.Query
}

type known = Workers

func (w *lostWorkers) Workers(ctx context.Context, q registry.Query, node string) (list verb.Partial[registry.Page], err error) {
	switch w.asked = q; q.ID {
	case "gone":
		list.Value.Workers = []registry.Info{{ID: q.ID, Lost: &registry.Lost{At: time.Now()}}}
		return list, nil
	case "silent":
		list.Missing = []verb.Missing{{Node: "n9"}, {Node: "n8"}}
		return list, nil
	}
	return w.known.Workers(ctx, q, node)
}

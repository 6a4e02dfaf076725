package pawl_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// work runs a worker until the returned stop, which returns Run's error.
func work(t testing.TB, client *pawl.Client, mux *pawl.Mux, cfg pawl.WorkerConfig) (*pawl.Worker, func() error) {
	t.Helper()
	w := pawl.NewWorker(client, mux, cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	synctest.Wait()
	stop := func() error {
		cancel()
		err := <-done
		done <- err
		return err
	}
	t.Cleanup(func() { stop() })
	return w, stop
}

// handle returns a mux with one handler for welcome.
func handle(h func(ctx context.Context, t *pawl.Task[welcome]) error) *pawl.Mux {
	mux := pawl.NewMux()
	pawl.Handle(mux, h)
	return mux
}

func enqueue(t testing.TB, client *pawl.Client, opts ...pawl.Option) *pawl.Ref {
	t.Helper()
	ref, err := client.Enqueue(t.Context(), welcome{To: "a@example.com"}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func TestWorkerRunsTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		mux := pawl.NewMux()
		var order []string
		mux.Use(func(next pawl.Handler) pawl.Handler {
			return func(ctx context.Context, c *pawl.Claim) error {
				order = append(order, "outer "+c.Type)
				err := next(ctx, c)
				order = append(order, string(pawl.OutcomeOf(err)))
				return err
			}
		}, func(next pawl.Handler) pawl.Handler {
			return func(ctx context.Context, c *pawl.Claim) error {
				order = append(order, "inner")
				return next(ctx, c)
			}
		})
		pawl.Handle(mux, func(ctx context.Context, t *pawl.Task[welcome]) error {
			return t.SetResult(fmt.Sprint(t.Args.To, t.Type, t.Attempt, t.Fence, t.Headers, t.Queue))
		})
		mux.HandleFunc("raw", func(ctx context.Context, c *pawl.Claim) error {
			c.SetRawResult("text/plain", c.Payload)
			return nil
		})
		w, stop := work(t, client, mux, pawl.WorkerConfig{Queues: pawl.Weighted{"mail": 7, "default": 3}, Name: "w1", Lease: time.Minute})
		ref := enqueue(t, client, pawl.Queue("mail"), pawl.Header("a", "b"))
		var got string
		err := ref.Result(t.Context(), &got)
		if want := `a@example.commail.welcome11map[a:b]mail`; err != nil || strings.ReplaceAll(got, " ", "") != want {
			t.Errorf("the result is %q, %v, want %q", got, err, want)
		}
		raw, err := client.Enqueue(t.Context(), pawl.RawTask{Type: "raw", Payload: []byte("\x00\xff"), ContentType: "x"})
		if err != nil {
			t.Fatal(err)
		}
		if info, err := raw.Wait(t.Context()); err != nil || string(info.Result) != "\x00\xff" {
			t.Errorf("the raw task is %+v, %v, want its payload as result", info, err)
		}
		if err := w.Health(); err != nil || !w.Stats().Connected || w.Stats().Succeeded != 2 {
			t.Errorf("the worker's health is %v and its stats are %+v", err, w.Stats())
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		f.mu.Lock()
		h := f.hellos[0]
		f.mu.Unlock()
		if got := fmt.Sprint(h.Queues, h.Order, h.Types, h.Lease.AsDuration(), h.Worker); strings.ReplaceAll(got, " ", "") !=
			`[queue:"default"weight:3queue:"mail"weight:7]ORDER_WEIGHTED[mail.welcomeraw]1m0sw1` {
			t.Errorf("the worker's hello is %s", got)
		}
		if got := strings.Join(order[:4], ", "); got != "outer mail.welcome, inner, succeeded, outer raw" {
			t.Errorf("middleware ran in the order %s", got)
		}
		if w.Health() == nil {
			t.Error("a stopped worker is reported as healthy")
		}
	})
}

// By default a worker has a name and a number of slots, and it can run only once at a time.
func TestWorkerByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		mux := handle(func(context.Context, *pawl.Task[welcome]) error { return nil })
		if got := pawl.NewWorker(client, mux, pawl.WorkerConfig{}).Stats(); got != (pawltype.WorkerStats{}) {
			t.Errorf("the stats before the first run are %+v", got)
		}
		w, _ := work(t, client, mux, pawl.WorkerConfig{})
		host, _ := os.Hostname()
		if h := f.hellos[0]; h.GetWorker() != fmt.Sprintf("%s/%d", host, os.Getpid()) || h.GetSlots() != 10 || h.GetHost() != host {
			t.Errorf("the worker's hello is %v", h)
		}
		if err := w.Run(t.Context()); err == nil || !strings.HasSuffix(err.Error(), ": already running") {
			t.Errorf("a second Run at the same time: %v, want an error", err)
		}
	})
}

func TestWorkerRefusesBadConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := start(t)
		mux := handle(func(context.Context, *pawl.Task[welcome]) error { return nil })
		for name, cfg := range map[string]pawl.WorkerConfig{
			"weight":      {Queues: pawl.Weighted{"a": 0}},
			"no queues":   {Queues: pawl.Strict{}},
			"twice":       {Queues: pawl.Strict{"a", "a"}},
			"concurrency": {Concurrency: -1},
			"lease":       {Lease: time.Millisecond},
		} {
			wantErr(t, name, pawl.NewWorker(client, mux, cfg).Run(t.Context()), pawltype.ErrInvalidArgument)
		}
		wantErr(t, "no handlers", pawl.NewWorker(client, pawl.NewMux(), pawl.WorkerConfig{}).Run(t.Context()), pawltype.ErrInvalidArgument)
	})
}

func TestHandlerErrorsDecideOutcome(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		run  func(context.Context, *pawl.Task[welcome]) error
		want string // state, then the settle request
	}{
		"plain": {func(context.Context, *pawl.Task[welcome]) error { return fmt.Errorf("send: %w", boom) },
			"RETRYING RETRY 0s *errors.errorString send: boom"},
		"retry in": {func(context.Context, *pawl.Task[welcome]) error { return pawl.RetryIn(time.Hour, boom) },
			"RETRYING RETRY 1h0m0s *errors.errorString boom"},
		"dead": {func(context.Context, *pawl.Task[welcome]) error { return pawl.DeadLetter(boom) },
			"DEAD DEAD 0s *errors.errorString boom"},
		"wrapped": {func(context.Context, *pawl.Task[welcome]) error { return fmt.Errorf("x: %w", pawl.DeadLetter(boom)) },
			"DEAD DEAD 0s *errors.errorString x: boom"},
		"discard": {func(context.Context, *pawl.Task[welcome]) error { return pawl.Discard(boom) },
			"DISCARDED DISCARD 0s *errors.errorString boom"},
		"poison": {func(context.Context, *pawl.Task[welcome]) error { return pawl.Poison(boom) },
			"POISONED POISON 0s *errors.errorString boom"},
		"snooze": {func(context.Context, *pawl.Task[welcome]) error { return pawl.Snooze(time.Minute) }, "SCHEDULED release 1m0s"},
		"panic":  {func(context.Context, *pawl.Task[welcome]) error { panic("oh") }, "RETRYING RETRY 0s panic panic: oh"},
		"goexit": {func(context.Context, *pawl.Task[welcome]) error { runtime.Goexit(); return nil },
			"RETRYING RETRY 0s *errors.errorString handler called runtime.Goexit"},
		"not UTF-8": {func(context.Context, *pawl.Task[welcome]) error { return errors.New("\xff!") },
			"RETRYING RETRY 0s *errors.errorString \uFFFD!"},
		"big result": {func(_ context.Context, t *pawl.Task[welcome]) error { return t.SetResult(make([]byte, 1<<20)) },
			"DEAD DEAD 0s *pawltype.Error pawl: payload_too_large"},
		"timeout": {func(ctx context.Context, _ *pawl.Task[welcome]) error { <-ctx.Done(); return context.Cause(ctx) },
			"RETRYING RETRY 0s timeout timed out after 20s: context deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, client := start(t)
				work(t, client, handle(c.run), pawl.WorkerConfig{Concurrency: 1})
				ref := enqueue(t, client, pawl.Timeout(20*time.Second))
				time.Sleep(25 * time.Second)
				got := strings.TrimPrefix(f.task(t, ref.ID).state.String(), "STATE_")
				frames := f.frames()
				last := frames[len(frames)-1]
				for _, r := range last.Fails {
					got += fmt.Sprint(" ", strings.TrimPrefix(r.Outcome.String(), "FAIL_OUTCOME_"), " ", r.RetryIn.AsDuration(), " ",
						r.Error.Type, " ", r.Error.Message)
					if (name == "panic") != strings.Contains(r.Error.Stack, "worker_test.go") {
						t.Errorf("the stack is %q, want one only after a panic", r.Error.Stack)
					}
				}
				for _, r := range last.Releases {
					got += fmt.Sprint(" release ", r.Delay.AsDuration())
				}
				if got != c.want {
					t.Errorf("got  %s\nwant %s", got, c.want)
				}
				// The slot continues.
				enqueue(t, client, pawl.Timeout(20*time.Second))
				time.Sleep(25 * time.Second)
				if next := f.task(t, "t2").state; next == pawlv1.State_STATE_CLAIMED || next == pawlv1.State_STATE_READY {
					t.Errorf("the next task is %s, want that it ran", next)
				}
			})
		})
	}
}

func TestUndecodablePayloadIsPoison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := start(t)
		work(t, client, handle(func(context.Context, *pawl.Task[welcome]) error { return nil }), pawl.WorkerConfig{})
		for _, payload := range []string{`{"to":7}`, `{`} {
			ref, err := client.Enqueue(t.Context(), pawl.RawTask{Type: "mail.welcome", Payload: []byte(payload)})
			if err != nil {
				t.Fatal(err)
			}
			info, err := ref.Wait(t.Context())
			if err == nil || info.State != pawltype.StatePoisoned || !strings.Contains(err.Error(), "payload of type") {
				t.Errorf("payload %s: %v, want poisoned", payload, err)
			}
		}
	})
}

func TestProgressAndCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		work(t, client, handle(func(ctx context.Context, t *pawl.Task[welcome]) error {
			var page int
			if _, err := t.LastCheckpoint(&page); err != nil || page == 7 {
				return err
			}
			for n := range 100 {
				if err := t.Progress(ctx, float64(n), "sending"); err != nil {
					return err
				}
				time.Sleep(100 * time.Millisecond)
			}
			if err := t.Checkpoint(ctx, 7); err != nil {
				return err
			}
			return pawl.Snooze(1)
		}), pawl.WorkerConfig{})
		ref := enqueue(t, client)
		time.Sleep(5*time.Second + time.Millisecond)
		if got := f.task(t, ref.ID).progress.GetPercent(); got < 38 || got > 50 {
			t.Errorf("the progress after 5 s is %v, want 38 to 50", got)
		}
		time.Sleep(6 * time.Second)
		got := f.task(t, ref.ID)
		if string(got.check) != "7" || len(got.extends) < 9 || len(got.extends) > 16 {
			t.Errorf("got checkpoint %s and %d extensions, want 7 and about one a second", got.check, len(got.extends))
		}
		f.set(func() { f.ready = append(f.ready, f.tasks[ref.ID]); f.pump() })
		if _, err := ref.Wait(t.Context()); err != nil {
			t.Errorf("the next attempt did not get the checkpoint: %v", err)
		}
	})
}

func TestLeaseIsExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		work(t, client, handle(func(ctx context.Context, _ *pawl.Task[welcome]) error {
			select {
			case <-time.After(5 * time.Minute):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}), pawl.WorkerConfig{})
		begin := time.Now()
		ref := enqueue(t, client)
		if _, err := ref.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		last := begin
		extends := f.task(t, ref.ID).extends
		for _, at := range extends {
			if gap := at.Sub(last); gap < 9*time.Second || gap > 11*time.Second {
				t.Errorf("the gap between extensions is %s, want a third of 30 s", gap)
			}
			last = at
		}
		if len(extends) < 28 {
			t.Errorf("got %d extensions in 5 min, want at least 28", len(extends))
		}
	})
}

// untilDone is a handler that reports why its context ended.
func untilDone(causes chan<- error) *pawl.Mux {
	return handle(func(ctx context.Context, _ *pawl.Task[welcome]) error {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return context.Cause(ctx)
	})
}

func TestContextEndsWithTheClaim(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(f *fake, client *pawl.Client, id string)
		after time.Duration
		cause error
		told  bool // whether the outcome is sent to the broker: not for a claim that it has taken away
	}{
		"cancelled": {func(_ *fake, client *pawl.Client, id string) {
			admin.New(client).Tasks().Cancel(context.Background(), id)
		}, time.Millisecond, pawltype.ErrCancelled, false},
		"lost": {func(f *fake, _ *pawl.Client, id string) {
			f.set(func() { f.take(f.tasks[id], pawlv1.State_STATE_READY, "reclaimed") })
		}, time.Millisecond, pawltype.ErrLeaseLost, false},
		"extend refused": {func(f *fake, _ *pawl.Client, id string) {
			f.set(func() { f.tasks[id].token = "" })
		}, 11 * time.Second, pawltype.ErrLeaseLost, false},
		"broker silent": {func(f *fake, _ *pawl.Client, id string) {
			f.set(func() { f.mute = true })
		}, 31 * time.Second, pawltype.ErrLeaseLost, true},
		"lost in an outage": {func(f *fake, _ *pawl.Client, id string) {
			f.cut()
			f.set(func() { f.tasks[id].token = "" })
		}, time.Second, pawltype.ErrLeaseLost, false},
		"timeout": {func(*fake, *pawl.Client, string) {}, time.Minute + time.Second, context.DeadlineExceeded, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, client := start(t)
				causes := make(chan error, 1)
				_, stop := work(t, client, untilDone(causes), pawl.WorkerConfig{})
				ref := enqueue(t, client, pawl.Timeout(time.Minute))
				synctest.Wait()
				begin := time.Now()
				c.end(f, client, ref.ID)
				wantErr(t, "cause", <-causes, c.cause)
				if took := time.Since(begin); took > c.after {
					t.Errorf("the context ended after %s, want at most %s", took, c.after)
				}
				f.set(func() { f.mute = false })
				if err := stop(); err != nil {
					t.Error(err)
				}
				told := slices.ContainsFunc(f.frames(), func(r *pawlv1.SettleRequest) bool {
					return len(r.Acks)+len(r.Fails)+
						len(r.Releases) > 0
				})
				if told != c.told {
					t.Errorf("the outcome was sent to the broker: %v, want %v", told, c.told)
				}
			})
		})
	}
}

func TestUnavailableSettleIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		_, stop := work(t, client, handle(func(context.Context, *pawl.Task[welcome]) error { return nil }), pawl.WorkerConfig{})
		tries := 0
		f.set(func() {
			f.settleIt = func(string) *pawlv1.Error {
				if tries++; tries < 5 {
					return &pawlv1.Error{Code: "unavailable"}
				}
				return nil
			}
		})
		if _, err := enqueue(t, client).Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if err := stop(); err != nil || tries != 5 {
			t.Errorf("the worker ended with %v after %d attempts, want 5", err, tries)
		}
	})
}

func TestStaleSettleIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		proceed := make(chan struct{})
		w, stop := work(t, client, handle(func(context.Context, *pawl.Task[welcome]) error { <-proceed; return nil }), pawl.WorkerConfig{})
		ref := enqueue(t, client)
		synctest.Wait()
		f.set(func() { f.tasks[ref.ID].token = "other" })
		close(proceed)
		synctest.Wait()
		if got := w.Stats(); got.Unsettled != 0 || got.Running != 0 {
			t.Errorf("the stats are %+v, want nothing unsettled or running", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestRunReportsUnconfirmedTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		_, stop := work(t, client, handle(func(context.Context, *pawl.Task[welcome]) error { return nil }), pawl.WorkerConfig{})
		f.set(func() {
			f.loseAnswers = true
			f.before = func(method string) error {
				if method == "Settle" {
					return errUnavailable
				}
				return nil
			}
		})
		enqueue(t, client)
		synctest.Wait()
		begin := time.Now()
		err := stop()
		wantErr(t, "Run", err, pawltype.ErrUnavailable)
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("draining took %s, want at most 5s", took)
		}
	})
}

func TestRefusedWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		mux := handle(func(context.Context, *pawl.Task[welcome]) error { return nil })
		f.set(func() { f.greet = func(*pawlv1.WorkHello) error { return status.Error(codes.PermissionDenied, "no") } })
		began := time.Now()
		wantErr(t, "Run", pawl.NewWorker(client, mux, pawl.WorkerConfig{}).Run(t.Context()), pawltype.ErrPermissionDenied)
		if took := time.Since(began); took > 0 {
			t.Errorf("the worker was refused, but retried for %s", took)
		}

		// Once a stream was served, a worker reconnects when its token is valid again, however often.
		f.set(func() { f.greet = nil })
		work(t, client, mux, pawl.WorkerConfig{})
		for range 3 {
			enqueue(t, client)
			synctest.Wait()
			f.set(func() { f.greet = func(*pawlv1.WorkHello) error { return status.Error(codes.Unauthenticated, "no") } })
			f.cut()
			time.Sleep(50 * time.Second)
			f.set(func() { f.greet = nil })
			if _, err := enqueue(t, client).Wait(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// A stream that lasts counts as served, even if the broker sent nothing.
func TestSilentWorkerIsServed(t *testing.T) {
	for lasts, want := range map[time.Duration]time.Duration{5 * time.Second: 0, 6 * time.Second: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			f, client := start(t)
			done := make(chan error, 1)
			go func() {
				done <- pawl.NewWorker(client, handle(func(context.Context, *pawl.Task[welcome]) error { return nil }),
					pawl.WorkerConfig{}).Run(t.Context())
			}()
			time.Sleep(lasts)
			f.set(func() { f.greet = func(*pawlv1.WorkHello) error { return status.Error(codes.PermissionDenied, "no") } })
			f.cut()
			began := time.Now()
			wantErr(t, "Run", <-done, pawltype.ErrPermissionDenied)
			if took := time.Since(began).Truncate(time.Minute); took != want {
				t.Errorf("after a stream of %s the worker was refused and retried for %s, want %s", lasts, took, want)
			}
		})
	}
}

// A worker that was served, and then refused for a minute, ends with that error, and so do the contexts of its
// handlers. A worker that the broker refuses as unavailable keeps running.
func TestUnauthorizedWorkerEnds(t *testing.T) {
	for name, c := range map[string]struct {
		code codes.Code
		want error
	}{
		"unauthenticated":   {codes.Unauthenticated, pawltype.ErrUnauthenticated},
		"permission denied": {codes.PermissionDenied, pawltype.ErrPermissionDenied},
		"unavailable":       {codes.Unavailable, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, client := start(t)
				f.set(func() { f.lease = time.Hour })
				causes := make(chan error, 1)
				w := pawl.NewWorker(client, untilDone(causes), pawl.WorkerConfig{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan error, 1)
				go func() { done <- w.Run(ctx) }()
				enqueue(t, client)
				synctest.Wait()
				f.set(func() { f.greet = func(*pawlv1.WorkHello) error { return status.Error(c.code, "no") } })
				f.cut()
				began := time.Now()
				time.Sleep(59 * time.Second)
				if len(done) > 0 {
					t.Fatalf("the worker ended too early: %v", <-done)
				}
				time.Sleep(10 * time.Second)
				if c.want == nil {
					if len(done) > 0 || len(causes) > 0 {
						t.Error("the worker ended although the broker was only unavailable")
					}
					f.set(func() { f.greet = nil })
					cancel()
					wantErr(t, "Run", <-done, nil)
					return
				}
				synctest.Wait()
				if len(done) == 0 {
					t.Fatalf("the worker is still running after %v", time.Since(began))
				}
				wantErr(t, "Run", <-done, c.want)
				if cause := <-causes; cause != pawltype.ErrDraining {
					t.Errorf("the handler's context ended with %v, want ErrDraining", cause)
				}
			})
		})
	}
}

// While two frames wait for their responses, outcomes are gathered.
func TestSettlesGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		f.set(func() { f.loseAnswers = true })
		_, stop := work(t, client, handle(func(_ context.Context, t *pawl.Task[welcome]) error {
			time.Sleep(time.Duration(len(t.ID)) * time.Second) // t1 to t9 end before t10 to t60
			return nil
		}), pawl.WorkerConfig{Concurrency: 100, DrainTimeout: -1})
		for range 60 {
			enqueue(t, client)
		}
		time.Sleep(20 * time.Second)
		frames, acks := 0, 0
		for _, r := range f.frames() {
			if len(r.Acks) > 0 {
				frames, acks = frames+1, acks+len(r.Acks)
			}
		}
		if frames != 2 || acks == 0 {
			t.Errorf("got %d frames with %d acks, want 2 frames", frames, acks)
		}
		f.set(func() { f.loseAnswers = false })
		if err := stop(); err != nil {
			t.Error(err)
		}
		for n := range 60 {
			id := fmt.Sprintf("t%d", n+1)
			if got := f.task(t, id).state; got != pawlv1.State_STATE_SUCCEEDED {
				t.Errorf("%s is %s, want succeeded", id, got)
			}
		}
	})
}

func TestClaimsByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		for range 5 {
			enqueue(t, client)
		}
		claimed, err := claims.New(client).Claim(t.Context(), claims.Request{Queues: pawl.Strict{"default"}, Max: 5})
		if err != nil || len(claimed) != 5 {
			t.Fatalf("got %d claims, %v, want 5", len(claimed), err)
		}
		if _, err := claims.New(client).Claim(t.Context(), claims.Request{}); !errors.Is(err, pawltype.ErrInvalidArgument) {
			t.Errorf("a claim without queues: %v, want ErrInvalidArgument", err)
		}
		c := claimed[0]
		if err := c.Progress(t.Context(), 50, "half"); err != nil {
			t.Error(err)
		}
		if err := c.Checkpoint(t.Context(), map[string]int{"page": 3}); err != nil {
			t.Error(err)
		}
		if err := errors.Join(c.SetResult(1), claims.New(client).Ack(t.Context(), c), claims.New(client).Ack(t.Context(), c)); err != nil {
			t.Errorf("acking twice: %v", err)
		}
		if s, err := claims.New(client).Fail(t.Context(), claimed[1], pawl.DeadLetter(errors.New("x"))); err != nil ||
			s.State != pawltype.StateDead {
			t.Errorf("Fail = %+v, %v, want dead", s, err)
		}
		if s, err := claims.New(client).Release(t.Context(), claimed[2], time.Minute); err != nil || s.State != pawltype.StateScheduled {
			t.Errorf("Release = %+v, %v, want scheduled", s, err)
		}
		f.set(func() { f.tasks[claimed[3].ID].token = "other" })
		_, err = claims.New(client).Extend(t.Context(), claimed[3], claims.Extension{})
		wantErr(t, "extend", err, pawltype.ErrStaleClaim)
		out, err := claims.New(client).SettleAll(t.Context(), []claims.Settlement{{Claim: claimed[4], Err: pawl.Snooze(time.Second)},
			{Claim: claimed[3]}, {Claim: c}})
		if err != nil || len(out) != 3 || out[0].State != pawltype.StateScheduled || !errors.Is(out[1].Err, pawltype.ErrStaleClaim) ||
			out[2].State != pawltype.StateSucceeded {
			t.Errorf("SettleAll = %+v, %v", out, err)
		}
		got := f.task(t, c.ID)
		var check map[string]int
		if json.Unmarshal(got.check, &check); got.progress.Percent != 50 || check["page"] != 3 || string(got.result) != "1" {
			t.Errorf("the task is %+v", got)
		}
	})
}

func TestMux(t *testing.T) {
	mux := handle(func(_ context.Context, t *pawl.Task[welcome]) error { return t.SetResult(t.Args.To) })
	c := &pawl.Claim{Type: "mail.welcome", Payload: []byte(`{"to":"x"}`)}
	if err := mux.Handler()(t.Context(), c); err != nil || string(c.Result()) != `"x"` {
		t.Errorf("a handler without a worker: %v, result %s", err, c.Result())
	}
	if err := mux.Handler()(t.Context(), &pawl.Claim{Type: "other"}); err == nil {
		t.Error("a type without a handler returned no error")
	}
	for name, register := range map[string]func(){
		"twice": func() { pawl.Handle(mux, func(context.Context, *pawl.Task[welcome]) error { return nil }) },
		"empty": func() { mux.HandleFunc("", func(context.Context, *pawl.Claim) error { return nil }) },
		"other": func() { mux.HandleFunc("\xff", func(context.Context, *pawl.Claim) error { return nil }) },
		"nil":   func() { mux.HandleFunc("x", nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("registering %s did not panic", name)
				}
			}()
			register()
		}()
	}
}

// A stream that is silent is reopened after a minute, and less and less often if it stays silent. Once it is heard from
// again, it is reopened after a minute again.
func TestIdleStreamIsReopenedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		mux := pawl.NewMux()
		mux.HandleFunc("a", func(context.Context, *pawl.Claim) error { return nil })
		_, stop := work(t, client, mux, pawl.WorkerConfig{})
		opened := func() int {
			f.mu.Lock()
			defer f.mu.Unlock()
			return len(f.hellos)
		}
		for _, c := range []struct {
			after    time.Duration
			min, max int
		}{{59 * time.Second, 1, 1}, {76 * time.Second, 2, 2}, {4 * time.Minute, 3, 3}, {24 * time.Hour, 288, 363}} {
			time.Sleep(c.after)
			if n := opened(); n < c.min || n > c.max {
				t.Errorf("after %s more, the stream was opened %d times, want %d to %d", c.after, n, c.min, c.max)
			}
		}
		ref, err := client.Enqueue(t.Context(), pawl.RawTask{Type: "a"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ref.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := opened()
		time.Sleep(76 * time.Second)
		if n := opened() - before; n != 1 {
			t.Errorf("the stream was opened %d times in the minute after a task, want 1", n)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

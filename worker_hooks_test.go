package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// OnError and OnPanic are called for each run that failed, and for no other.
func TestOnErrorAndOnPanic(t *testing.T) {
	boom := errors.New("boom")
	wait := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for name, c := range map[string]struct {
		run  func(ctx context.Context) error
		stop func(f *fake, id string)
		want string // the error for OnError. With OnPanic set, a panic is passed to that
	}{
		"failed":     {func(context.Context) error { return boom }, nil, "boom"},
		"dead":       {func(context.Context) error { return pawl.DeadLetter(boom) }, nil, "boom"},
		"poisoned":   {func(context.Context) error { return pawl.Poison(boom) }, nil, "boom"},
		"retried":    {func(context.Context) error { return pawl.RetryIn(time.Hour, boom) }, nil, "boom"},
		"timed out":  {wait, nil, "context deadline exceeded"},
		"panicked":   {func(context.Context) error { panic(boom) }, nil, "panic: boom"},
		"succeeded":  {func(context.Context) error { return nil }, nil, ""},
		"discarded":  {func(context.Context) error { return pawl.Discard(boom) }, nil, ""},
		"snoozed":    {func(context.Context) error { return pawl.Snooze(time.Minute) }, nil, ""},
		"cancelled":  {wait, func(f *fake, id string) { f.take(f.tasks[id], pawlv1.State_STATE_CANCELLED, "cancelled") }, ""},
		"lease lost": {wait, func(f *fake, id string) { f.take(f.tasks[id], pawlv1.State_STATE_READY, "expired") }, ""},
		"drained":    {wait, func(*fake, string) {}, ""},
	} {
		for _, both := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, OnPanic %v", name, both), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f, client := start(t)
					var told []string
					tell := func(ctx context.Context, c *pawl.Claim, what string) {
						if ctx.Err() != nil || ctx.Value(toldKey{}) != "value" {
							t.Errorf("%s: the context has ended or lacks the value of the handler's context: %v", what, ctx.Err())
						}
						told = append(told, c.Type+" "+what)
					}
					first := true
					mux := handle(func(ctx context.Context, _ *pawl.Task[welcome]) error {
						if !first {
							return nil
						}
						first = false
						return c.run(ctx)
					})
					cfg := pawl.WorkerConfig{Concurrency: 1, DrainTimeout: -1, OnError: func(ctx context.Context,
						c *pawl.Claim, err error) {
						tell(ctx, c, err.Error())
					}}
					if both {
						cfg.OnPanic = func(ctx context.Context, c *pawl.Claim, p *pawltype.PanicError) {
							if !errors.Is(p, boom) || !strings.Contains(string(p.Stack), "worker_hooks_test.go") {
								t.Errorf("OnPanic got %v with the stack %s", p.Value, p.Stack)
							}
							tell(ctx, c, "apart: "+p.Error())
						}
					}
					ctx, stop := context.WithCancel(context.WithValue(t.Context(), toldKey{}, "value"))
					defer stop()
					ended := make(chan error, 1)
					go func() { ended <- pawl.NewWorker(client, mux, cfg).Run(ctx) }()
					ref := enqueue(t, client, pawl.Timeout(20*time.Second))
					synctest.Wait()
					if c.stop != nil && name != "drained" {
						f.mu.Lock()
						c.stop(f, ref.ID)
						f.mu.Unlock()
					}
					if name != "drained" {
						time.Sleep(25 * time.Second)
					}
					stop()
					if err := <-ended; err != nil {
						t.Error(err)
					}
					var want []string
					if c.want != "" {
						want = []string{"mail.welcome " + c.want}
					}
					if both && name == "panicked" {
						want = []string{"mail.welcome apart: panic: boom"}
					}
					if !slices.Equal(told, want) {
						t.Errorf("the hooks got %q, want %q", told, want)
					}
				})
			})
		}
	}
}

// A slot continues after an OnError that panics, and the panic is logged. A worker with only OnPanic set gets only panics.
func TestOnErrorPanics(t *testing.T) {
	boom := errors.New("boom")
	for what, x := range map[string]struct {
		cfg    pawl.WorkerConfig
		runs   error // nil: it panics
		panics int   // in the log
	}{
		"OnError panics":   {pawl.WorkerConfig{OnError: func(context.Context, *pawl.Claim, error) { panic("oh") }}, boom, 3},
		"OnError does not": {pawl.WorkerConfig{OnError: func(context.Context, *pawl.Claim, error) {}}, boom, 0},
		"OnPanic panics":   {pawl.WorkerConfig{OnPanic: func(context.Context, *pawl.Claim, *pawltype.PanicError) { panic("oh") }}, nil, 3},
		"OnPanic does not": {pawl.WorkerConfig{OnPanic: func(context.Context, *pawl.Claim, *pawltype.PanicError) {}}, nil, 0},
		"OnPanic is alone": {pawl.WorkerConfig{OnPanic: func(context.Context, *pawl.Claim, *pawltype.PanicError) { panic("oh") }}, boom, 0},
		"there is neither": {pawl.WorkerConfig{}, nil, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, client := start(t)
			var log strings.Builder
			x.cfg.Concurrency, x.cfg.Logger = 1, slog.New(slog.NewTextHandler(&log, nil))
			_, stop := work(t, client, handle(func(context.Context, *pawl.Task[welcome]) error {
				if x.runs == nil {
					panic(boom)
				}
				return x.runs
			}), x.cfg)
			for range 3 {
				ref := enqueue(t, client)
				time.Sleep(time.Second)
				if got := f.task(t, ref.ID).state; got != pawlv1.State_STATE_RETRYING {
					t.Errorf("%s: task %s is %s, want retrying", what, ref.ID, got)
				}
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
			if got := strings.Count(log.String(), "OnError or OnPanic panicked"); got != x.panics {
				t.Errorf("%s: the log has %d panics, want %d:\n%s", what, got, x.panics, log.String())
			}
		})
	}
}

// Middleware of one type runs inside the middleware of all types, and wraps no other type.
func TestMiddlewareOfOneType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := start(t)
		var mu sync.Mutex
		var order []string
		ran := func(name string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, name)
		}
		note := func(name string) func(pawl.Handler) pawl.Handler {
			return func(next pawl.Handler) pawl.Handler {
				return func(ctx context.Context, c *pawl.Claim) error {
					ran(name)
					return next(ctx, c)
				}
			}
		}
		mux := pawl.NewMux()
		pawl.Handle(mux, func(context.Context, *pawl.Task[welcome]) error { ran("welcome"); return nil }, note("own 1"), note("own 2"))
		mux.HandleFunc("raw", func(context.Context, *pawl.Claim) error { ran("raw"); return nil }, note("own 3"))
		mux.HandleFunc("bare", func(context.Context, *pawl.Claim) error { ran("bare"); return nil })
		mux.Use(note("all"))
		work(t, client, mux, pawl.WorkerConfig{Concurrency: 1})
		for _, args := range []pawl.Args{welcome{}, pawl.RawTask{Type: "raw"}, pawl.RawTask{Type: "bare"}} {
			if _, err := client.Enqueue(t.Context(), args); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		mu.Lock()
		defer mu.Unlock()
		if got := strings.Join(order, ", "); got != "all, own 1, own 2, welcome, all, own 3, raw, all, bare" {
			t.Errorf("the order was: %s", got)
		}
	})
}

type toldKey struct{}

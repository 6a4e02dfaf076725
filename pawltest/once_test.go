package pawltest_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/pawltest"
	"github.com/pawlq/pawl/pawltype"
)

// works runs tasks with a worker in a bubble until fn returns.
func works(t *testing.T, handle func(ctx context.Context, task *pawl.Task[resize]) error, fn func(t *testing.T, client *pawl.Client)) {
	synctest.Test(t, func(t *testing.T) {
		client := pawltest.New(t).Client(t)
		mux := pawl.NewMux()
		pawl.Handle(mux, handle)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- pawl.NewWorker(client, mux, pawl.WorkerConfig{Concurrency: 20}).Run(ctx) }()
		fn(t, client)
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

func enqueue(t *testing.T, client *pawl.Client, args resize, opts ...pawl.Option) *pawl.Ref {
	t.Helper()
	ref, err := client.Enqueue(t.Context(), args, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// Ten tasks request one effect that takes longer than any of them waits. One runs it, and all get its result without using an attempt.
func TestOnceAmongTasks(t *testing.T) {
	var effects atomic.Int64
	var heldOff atomic.Int64
	works(t, func(ctx context.Context, task *pawl.Task[resize]) error {
		got, err := pawl.Once(ctx, task, "order-7", func(ctx context.Context) (charge, error) {
			time.Sleep(45 * time.Second) // longer than the lease, which the worker extends
			return charge{"ch_7", int(effects.Add(1))}, nil
		})
		if errors.Is(err, pawltype.ErrOnceHeld) {
			heldOff.Add(1)
		}
		if err != nil {
			return err
		}
		return task.SetResult(got)
	}, func(t *testing.T, client *pawl.Client) {
		var refs []*pawl.Ref
		for n := range 10 {
			refs = append(refs, enqueue(t, client, resize{Width: n}, pawl.MaxAttempts(1)))
		}
		for _, ref := range refs {
			var got charge
			info, err := ref.Wait(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := info.DecodeResult(&got); err != nil || got != (charge{"ch_7", 1}) {
				t.Errorf("the result is %+v, %v, want that of the first effect", got, err)
			}
		}
	})
	if effects.Load() != 1 || heldOff.Load() < 9 {
		t.Errorf("got %d effects, want 1, and tasks waited %d times, want at least 9", effects.Load(), heldOff.Load())
	}
}

// A failed effect is not recorded, and releases the key immediately, also for the same run.
func TestFailedOnce(t *testing.T) {
	runs, busy := 0, errors.New("busy")
	attempts(t, func(*testing.T, int, *pawltest.Result) {}, func(ctx context.Context, task *pawl.Task[resize]) error {
		for range 3 {
			_, err := pawl.Once(ctx, task, "a", func(context.Context) (any, error) {
				if runs++; runs == 1 {
					return nil, busy
				}
				return nil, nil
			})
			if (runs == 1) != errors.Is(err, busy) {
				t.Errorf("run %d: Once returned %v", runs, err)
			}
		}
		return nil
	})
	if runs != 2 {
		t.Errorf("the effect ran %d times, want 2", runs)
	}
}

// Goroutines of one handler are the same holder to the broker, but the effect still happens once.
func TestOnceAmongGoroutines(t *testing.T) {
	var once, steps atomic.Int64
	many := func(ctx context.Context, c pawl.Claimed) {
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if _, err := pawl.Once(ctx, c, "a", func(context.Context) (any, error) {
					once.Add(1)
					time.Sleep(time.Second)
					return nil, nil
				}); err != nil {
					t.Error(err)
				}
				if n, err := pawl.Step(ctx, c, "a", func(context.Context) (int64, error) {
					time.Sleep(time.Second)
					steps.Add(1)
					return 7, nil
				}); n != 7 || err != nil {
					t.Error(n, err)
				}
			})
		}
		all.Wait()
	}
	attempts(t, func(*testing.T, int, *pawltest.Result) {}, func(ctx context.Context, task *pawl.Task[resize]) error {
		many(ctx, task)
		return nil
	})
	if once.Load() != 1 || steps.Load() != 1 {
		t.Errorf("%d effects and %d steps, want one of each", once.Load(), steps.Load())
	}
	synctest.Test(t, func(t *testing.T) { // and without a broker
		by := &pawl.Claim{ID: "t1"}
		many(t.Context(), by)
	})
	if once.Load() != 2 || steps.Load() != 2 {
		t.Errorf("after running without a broker too: %d effects and %d steps, want 2 of each", once.Load(), steps.Load())
	}
}

// The effect of fn is recorded even though the run has timed out, so that the next attempt finds it.
func TestEffectIsRecordedAfterTimeout(t *testing.T) {
	var once, steps atomic.Int64
	works(t, func(ctx context.Context, task *pawl.Task[resize]) error {
		slow := func(n *atomic.Int64) func(ctx context.Context) (int64, error) {
			return func(ctx context.Context) (int64, error) {
				<-ctx.Done()
				return n.Add(1), nil // it ignores the timeout, and has its effect
			}
		}
		if task.Args.Width == 1 {
			_, err := pawl.Once(ctx, task, "a", slow(&once))
			return errors.Join(err, ctx.Err())
		}
		_, err := pawl.Step(ctx, task, "a", slow(&steps))
		return errors.Join(err, ctx.Err())
	}, func(t *testing.T, client *pawl.Client) {
		for width := range 2 {
			if _, err := enqueue(t, client, resize{Width: width}, pawl.Timeout(5*time.Second)).Wait(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	if once.Load() != 1 || steps.Load() != 1 {
		t.Errorf("%d effects and %d steps, want one of each", once.Load(), steps.Load())
	}
}

// If a holder disappears, its key is released when its lease expires. The holder's later calls are refused.
func TestOnceAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := pawltest.New(t).Client(t)
		claimed, ctx := claims.New(client), t.Context()
		take := func() *pawl.Claim {
			got, err := claimed.Claim(ctx, claims.Request{Queues: pawl.Strict{"default"}, Worker: "w1"})
			if err != nil || len(got) != 1 {
				t.Fatalf("got %d claims, %v, want 1", len(got), err)
			}
			return got[0]
		}
		state := func(c *pawl.Claim) pawltype.OnceState {
			a, err := claimed.BeginOnce(ctx, c, "a")
			if err != nil {
				t.Fatal(err)
			}
			return a.State
		}
		for n := range 2 {
			enqueue(t, client, resize{Width: n})
		}
		dead, other := take(), take()
		if s := state(dead); s != pawltype.OnceRun {
			t.Errorf("the first holder's state is %s, want run", s)
		}
		a, err := claimed.BeginOnce(ctx, other, "a")
		if err != nil || a.State != pawltype.OnceHeld || a.Holder != (pawltype.OnceHolder{TaskID: dead.ID, Worker: "w1", Fence: 1}) ||
			a.RetryAfter != time.Second {
			t.Errorf("the second claim's BeginOnce = %+v, %v, want it held by the first", a, err)
		}
		for range 3 {
			time.Sleep(20 * time.Second)
			if _, err := claimed.Extend(ctx, other, claims.Extension{}); err != nil {
				t.Fatal(err)
			}
		}
		if s := state(other); s != pawltype.OnceRun {
			t.Errorf("after the first holder's lease has expired, the second has the state %s, want run", s)
		}
		_, err = claimed.FinishOnce(ctx, dead, "a", nil, 0)
		if !errors.Is(err, pawltype.ErrStaleClaim) {
			t.Errorf("FinishOnce of the expired holder: %v, want ErrStaleClaim", err)
		}
		until, err := claimed.FinishOnce(ctx, other, "a", []byte("7"), time.Hour)
		if err != nil || time.Until(until) < 59*time.Minute {
			t.Errorf("FinishOnce of the second holder = %v, %v, want it kept for an hour", until, err)
		}
		if s, err := claimed.AbandonOnce(ctx, other, "a"); s != pawltype.OnceDone || err != nil {
			t.Errorf("AbandonOnce of a finished effect = %s, %v, want done", s, err)
		}
	})
}

package pawltest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/keyring"
	"github.com/pawlq/pawl/pawltest"
	"github.com/pawlq/pawl/pawltype"
)

// attempts runs one task with each of the handlers in turn.
func attempts(t *testing.T, each func(t *testing.T, n int, r *pawltest.Result), handlers ...func(context.Context,
	*pawl.Task[resize]) error) {
	synctest.Test(t, func(t *testing.T) {
		b := pawltest.New(t)
		var last *pawltest.Result
		for n, handle := range handlers {
			mux := pawl.NewMux()
			pawl.Handle(mux, handle)
			if last == nil {
				last = b.Run(t, mux, resize{Width: 640}, pawl.MaxAttempts(9))
			} else {
				last = b.RunAgain(t, mux, last)
			}
			each(t, n, last)
		}
	})
}

type charge struct {
	ID    string `json:"id"`
	Cents int    `json:"cents"`
}

// A handler that fails, panics, is snoozed or ends as a dead letter after a step resumes after the step, with its
// result, and its checkpoint is still there.
func TestStepsRunOnce(t *testing.T) {
	charges, mails := 0, 0
	ends := []func() error{
		func() error { return errors.New("no network") },
		func() error { panic("out of paper") },
		func() error { return pawl.Snooze(1) },
		func() error { return pawl.DeadLetter(errors.New("no address")) },
		func() error { return nil },
	}
	run := 0
	handle := func(ctx context.Context, task *pawl.Task[resize]) error {
		run++
		var page int
		if found, err := task.LastCheckpoint(&page); err != nil || found != (run > 1) || found && page != run-1 {
			t.Errorf("run %d: LastCheckpoint = %d, %t, %v", run, page, found, err)
		}
		got, err := pawl.Step(ctx, task, "charge", func(context.Context) (charge, error) {
			charges++
			return charge{"ch_1", 1999}, nil
		})
		if err != nil || got != (charge{"ch_1", 1999}) {
			t.Errorf("run %d: the step charge returned %+v, %v", run, got, err)
		}
		if err := task.Checkpoint(ctx, run); err != nil {
			return err
		}
		mail := func(context.Context) (int, error) { mails++; return mails, nil }
		for range 2 { // the same name is the same step
			if n, err := pawl.Step(ctx, task, "mail", mail); n != 1 || err != nil {
				t.Errorf("run %d: the step mail returned %d, %v, want 1", run, n, err)
			}
		}
		return ends[run-1]()
	}
	attempts(t, func(t *testing.T, n int, r *pawltest.Result) {
		var kept struct {
			Steps      map[string]json.RawMessage `json:"pawl_steps"`
			Checkpoint int                        `json:"checkpoint"`
		}
		if n < 4 && (json.Unmarshal(r.Checkpoint, &kept) != nil || kept.Checkpoint != n+1 || string(kept.Steps["mail"]) != "1") {
			t.Errorf("after run %d the stored checkpoint is %s", n+1, r.Checkpoint)
		}
		if n == 4 && (r.State != pawltype.StateSucceeded || len(r.AttemptLog) != 5) {
			t.Errorf("the task is %s after %d attempts: %v, want succeeded after 5", r.State, len(r.AttemptLog), r.Err)
		}
	}, handle, handle, handle, handle, handle)
	if run != 5 || charges != 1 || mails != 1 {
		t.Errorf("%d runs made %d charges and %d mails, want 5, 1 and 1", run, charges, mails)
	}
}

// An error of fn is not recorded, and is returned to the caller unchanged.
func TestFailedStepRunsAgain(t *testing.T) {
	busy, runs := errors.New("busy"), 0
	handle := func(ctx context.Context, task *pawl.Task[resize]) error {
		_, err := pawl.Step(ctx, task, "charge", func(context.Context) (string, error) {
			if runs++; runs == 1 {
				return "", pawl.Discard(busy)
			}
			return "ch_1", nil
		})
		if runs == 1 && (!errors.Is(err, busy) || pawl.OutcomeOf(err) != pawltype.OutcomeDiscarded || !strings.Contains(err.Error(),
			`step "charge"`)) {
			t.Errorf("Step returned %v, want the error of fn with the step's name", err)
		}
		if runs == 1 {
			return busy
		}
		return err
	}
	attempts(t, func(t *testing.T, n int, r *pawltest.Result) {
		if want := []pawltype.State{pawltype.StateRetrying, pawltype.StateSucceeded}[n]; r.State != want || r.Checkpoint != nil {
			t.Errorf("run %d: the task is %s with checkpoint %s: %v", n+1, r.State, r.Checkpoint, r.Err)
		}
	}, handle, handle)
	if runs != 2 {
		t.Errorf("fn ran %d times, want 2", runs)
	}
}

// A result of another type that an older version of the program recorded is an error that names the step. An additional field in R is fine.
func TestStepOfAnotherVersion(t *testing.T) {
	failed := errors.New("failed")
	first := func(ctx context.Context, task *pawl.Task[resize]) error {
		_, err := pawl.Step(ctx, task, "charge", func(context.Context) (charge, error) { return charge{"ch_1", 1999}, nil })
		return errors.Join(err, failed)
	}
	refused := func(ctx context.Context, task *pawl.Task[resize]) error {
		never := func(context.Context) (string, error) { t.Error("fn ran again"); return "", nil }
		_, err := pawl.Step(ctx, task, "charge", never)
		if err == nil || !strings.Contains(err.Error(), `step "charge" of task`) || !strings.Contains(err.Error(), "doesn't fit string") {
			t.Errorf("reading the result as a string: %v, want an error that names the step", err)
		}
		_, err = pawl.Step(ctx, task, "charge", func(context.Context) (struct{ ID string }, error) {
			t.Error("fn ran again")
			return struct{ ID string }{}, nil
		})
		if err == nil || !strings.Contains(err.Error(), `"cents"`) || strings.Contains(err.Error(), "1999") {
			t.Errorf("reading the result into a type without a field: %v, want an error that names the field", err)
		}
		more, err := pawl.Step(ctx, task, "charge", func(context.Context) (struct {
			charge
			Country string
		}, error) {
			panic("fn ran again")
		})
		if err != nil || more.Cents != 1999 {
			t.Errorf("reading the result into a type with another field: %+v, %v", more, err)
		}
		return nil
	}
	attempts(t, func(t *testing.T, n int, r *pawltest.Result) {
		if n == 1 && r.State != pawltype.StateSucceeded {
			t.Errorf("the task is %s, want succeeded: %v", r.State, r.Err)
		}
	}, first, refused)
}

// A step that can't be recorded is not retried, since fn has run.
func TestUnrecordableStep(t *testing.T) {
	large := func(n int) func(context.Context) (string, error) {
		return func(context.Context) (string, error) { return strings.Repeat("x", n), nil }
	}
	for name, c := range map[string]struct {
		run  func(ctx context.Context, task *pawl.Task[resize]) error
		want []string
	}{
		"too large": {func(ctx context.Context, task *pawl.Task[resize]) error {
			_, err := pawl.Step(ctx, task, "all", large(64<<10))
			return err
		}, []string{`step "all"`, "checkpoint: 65", "at most 65536"}},
		"too large together": {func(ctx context.Context, task *pawl.Task[resize]) error {
			for n := range 3 {
				if _, err := pawl.Step(ctx, task, fmt.Sprint(n), large(30<<10)); err != nil {
					return err
				}
			}
			return nil
		}, []string{`step "2"`, "with 3 steps"}},
		"no JSON": {func(ctx context.Context, task *pawl.Task[resize]) error {
			_, err := pawl.Step(ctx, task, "all", func(context.Context) (chan int, error) { return nil, nil })
			return err
		}, []string{`step "all"`, "chan int"}},
		"an effect that is too large": {func(ctx context.Context, task *pawl.Task[resize]) error {
			_, err := pawl.Once(ctx, task, "all", large(64<<10))
			return err
		}, []string{`once "all"`, "result: 65538 bytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			attempts(t, func(t *testing.T, _ int, r *pawltest.Result) {
				if r.State != pawltype.StateDead || r.Err == nil {
					t.Fatalf("the task is %s, want dead: %v", r.State, r.Err)
				}
				for _, words := range c.want {
					if !strings.Contains(r.Err.Error(), words) {
						t.Errorf("the error %q does not contain %q", r.Err, words)
					}
				}
			}, c.run)
		})
	}
}

// Names have a limit, and if the checkpoint leaves no room for a step, the error is returned before fn runs.
func TestRefusedStep(t *testing.T) {
	attempts(t, func(t *testing.T, _ int, r *pawltest.Result) {
		if r.State != pawltype.StateSucceeded {
			t.Errorf("the task is %s, want succeeded: %v", r.State, r.Err)
		}
	}, func(ctx context.Context, task *pawl.Task[resize]) error {
		never := func(context.Context) (int, error) { t.Error("fn ran"); return 0, nil }
		for _, name := range []string{"", strings.Repeat("n", 257), "\xff"} {
			if _, err := pawl.Step(ctx, task, name, never); !errors.Is(err, pawltype.ErrInvalidArgument) {
				t.Errorf("name %q: %v, want ErrInvalidArgument", name, err)
			}
		}
		for _, ttl := range []time.Duration{-time.Hour, time.Millisecond, 366 * 24 * time.Hour} {
			_, err := pawl.Once(ctx, task, "k", never, pawl.TTL(ttl))
			if !errors.Is(err, pawltype.ErrInvalidArgument) {
				t.Errorf("ttl %s: %v, want ErrInvalidArgument", ttl, err)
			}
		}
		if _, err := pawl.Once(ctx, task, strings.Repeat("k", 257), never); !errors.Is(err, pawltype.ErrInvalidArgument) {
			t.Errorf("a key of 257 bytes: %v, want ErrInvalidArgument", err)
		}
		return nil
	})
}

// A result that is too large only once it is encrypted makes the task a dead letter, too: a retry would run fn again.
func TestResultsTooLargeToEncrypt(t *testing.T) {
	keys, err := keyring.New(keyring.Config{Keys: []keyring.Key{{ID: "k", Secret: make([]byte, 32)}}})
	if err != nil {
		t.Fatal(err)
	}
	for what, record := range map[string]func(context.Context, pawl.Claimed, string, func(context.Context) (string, error)) (string, error){
		"step": pawl.Step[string],
		"once": func(ctx context.Context, c pawl.Claimed, key string, fn func(context.Context) (string, error)) (string, error) {
			return pawl.Once(ctx, c, key, fn)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			client, ran := pawltest.New(t).Client(t, pawl.DialOptions{Keyring: keys}), 0
			mux := pawl.NewMux()
			pawl.Handle(mux, func(ctx context.Context, task *pawl.Task[resize]) error {
				_, err := record(ctx, task, "charge", func(context.Context) (string, error) {
					ran++
					return strings.Repeat("x", 60<<10), nil
				})
				return err
			})
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- pawl.NewWorker(client, mux, pawl.WorkerConfig{}).Run(ctx) }()
			ref, err := client.Enqueue(t.Context(), resize{Width: 640}, pawl.MaxAttempts(3))
			if err != nil {
				t.Fatal(err)
			}
			task, err := ref.Wait(t.Context())
			if !errors.As(err, new(*pawltype.EndedError)) || task.State != pawltype.StateDead || ran != 1 {
				t.Errorf("%s: fn ran %d times, %v, want one run and a dead letter", what, ran, err)
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

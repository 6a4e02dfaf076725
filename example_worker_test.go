package pawl_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/pawlq/pawl"
)

// run runs a mux for one task without a broker, as tests of handlers can.
func run(mux *pawl.Mux, payload string) (*pawl.Claim, error) {
	c := &pawl.Claim{ID: "t1", Type: "mail.welcome", Attempt: 1, MaxAttempts: 5, Payload: []byte(payload)}
	return c, mux.Handler()(context.Background(), c)
}

// A worker that drains on SIGTERM.
func ExampleWorker() {
	addr, stop := broker()
	defer stop()
	client, err := pawl.Dial(addr)
	if err != nil {
		panic(err)
	}
	defer client.Close()

	mux := pawl.NewMux()
	pawl.Handle(mux, func(ctx context.Context, t *pawl.Task[Welcome]) error { return nil })
	worker := pawl.NewWorker(client, mux, pawl.WorkerConfig{
		Queues:       pawl.Strict{"urgent", "default"},
		Concurrency:  50,
		DrainTimeout: 20 * time.Second,
	})
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	time.AfterFunc(10*time.Millisecond, cancel) // for the example
	err = worker.Run(ctx)
	fmt.Println(err, worker.Stats().Running)
	// Output: <nil> 0
}

// Queues in proportion to weights, or strictly one before the other.
func ExampleWeighted() {
	inProportion := pawl.WorkerConfig{Queues: pawl.Weighted{"mail": 7, "default": 3}}
	firstThatHasATask := pawl.WorkerConfig{Queues: pawl.Strict{"urgent", "default"}}
	fmt.Println(inProportion.Queues, firstThatHasATask.Queues)
	// Output: map[default:3 mail:7] [urgent default]
}

func ExampleMux() {
	mux := pawl.NewMux()
	pawl.Handle(mux, func(ctx context.Context, t *pawl.Task[Welcome]) error { return nil })
	mux.HandleFunc("image.scale", func(ctx context.Context, c *pawl.Claim) error { return nil })
	fmt.Println(mux.Types())
	// Output: [image.scale mail.welcome]
}

// Middleware sees each claim before its handler, and the outcome. A task that is snoozed, or released because its
// worker drains, has not failed.
func ExampleMux_Use() {
	mux := pawl.NewMux()
	mux.Use(func(next pawl.Handler) pawl.Handler {
		return func(ctx context.Context, c *pawl.Claim) error {
			err := next(ctx, c)
			outcome := pawl.OutcomeOf(err)
			fmt.Println(c.Type, outcome, outcome.Failed())
			return err
		}
	})
	pawl.Handle(mux, func(ctx context.Context, t *pawl.Task[Welcome]) error { return pawl.Snooze(time.Hour) })
	run(mux, `{"to":"a@example.com"}`)
	// Output: mail.welcome snoozed false
}

// A long handler reports its progress, and resumes where an earlier attempt had to stop.
func ExampleTask() {
	mux := pawl.NewMux()
	pawl.Handle(mux, func(ctx context.Context, t *pawl.Task[Welcome]) error {
		page := 0
		if _, err := t.LastCheckpoint(&page); err != nil {
			return err
		}
		for ; page < 3; page++ {
			if err := t.Progress(ctx, 100*float64(page)/3, "sending"); err != nil {
				return err // the context has ended
			}
			if err := t.Checkpoint(ctx, page+1); err != nil {
				return err
			}
		}
		return t.SetResult(map[string]int{"pages": page})
	})
	claim, err := run(mux, `{"to":"a@example.com"}`)
	fmt.Println(string(claim.Result()), err)
	// Output: {"pages":3} <nil>
}

// Errors that decide the outcome of the task.
func ExampleDeadLetter() {
	gone, busy := errors.New("no such account"), errors.New("mail server is busy")
	for _, err := range []error{
		nil,
		busy,
		pawl.RetryIn(time.Hour, busy),
		pawl.Snooze(time.Hour),
		fmt.Errorf("welcome: %w", pawl.DeadLetter(gone)),
		pawl.Discard(gone),
		pawl.Poison(errors.New("version 7 of the payload")),
	} {
		fmt.Println(pawl.OutcomeOf(err))
	}
	// Output:
	// succeeded
	// failed
	// failed
	// snoozed
	// dead
	// discarded
	// poisoned
}

// Claim.Fence guards what a handler writes elsewhere: an older holder of the task has a lower number.
func ExampleClaim() {
	var written struct {
		fence int64
		value string
	}
	handler := pawl.Handler(func(ctx context.Context, c *pawl.Claim) error {
		if c.Fence <= written.fence {
			return pawl.Discard(errors.New("a newer holder was here"))
		}
		written.fence, written.value = c.Fence, string(c.Payload)
		return nil
	})
	ctx := context.Background()
	newer := handler(ctx, &pawl.Claim{Fence: 2, Payload: []byte("second")})
	older := handler(ctx, &pawl.Claim{Fence: 1, Payload: []byte("first")})
	fmt.Println(pawl.OutcomeOf(newer), pawl.OutcomeOf(older), written.value)
	// Output: succeeded discarded second
}

func ExampleRetry() {
	opts := []pawl.Option{
		pawl.MaxAttempts(8),
		pawl.Retry(pawl.RetryPolicy{Initial: time.Second, Factor: 2, Max: time.Hour, Jitter: 0.1}),
	}
	fmt.Println(len(opts))
	// Output: 2
}

func ExampleDial() {
	client, err := pawl.Dial("pawl.example.com",
		pawl.DialOptions{TLS: &tls.Config{}, Token: "s3cret", Logger: slog.Default(), RetryFor: 10 * time.Second},
	)
	if err != nil {
		panic(err)
	}
	fmt.Println(client.Close())
	// Output: <nil>
}

package pawltest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltest"
	"github.com/pawlq/pawl/pawltype"
)

type resize struct {
	Width int `json:"width"`
}

func (resize) TaskType() string { return "resize" }

func TestRunReportsOutcome(t *testing.T) {
	failed := errors.New("no such picture")
	for _, c := range []struct {
		name  string
		state pawltype.State
		err   error
		run   func(ctx context.Context, t *pawl.Task[resize]) error
	}{
		{"success", pawltype.StateSucceeded, nil, func(_ context.Context, t *pawl.Task[resize]) error {
			return t.SetResult(t.Args.Width / 2)
		}},
		{"failure", pawltype.StateRetrying, failed, func(context.Context, *pawl.Task[resize]) error { return failed }},
		{"dead letter", pawltype.StateDead, failed, func(context.Context, *pawl.Task[resize]) error { return pawl.DeadLetter(failed) }},
		{"discard", pawltype.StateDiscarded, failed, func(context.Context, *pawl.Task[resize]) error { return pawl.Discard(failed) }},
		{"panic", pawltype.StateRetrying, nil, func(context.Context, *pawl.Task[resize]) error { panic("out of paper") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := pawltest.RunFunc(t, c.run, resize{Width: 640})
			if got.State != c.state || !errors.Is(got.Err, c.err) {
				t.Errorf("%s: state %s, error %v, want %s, %v", c.name, got.State, got.Err, c.state, c.err)
			}
			if len(got.AttemptLog) != 1 {
				t.Errorf("%s: %d attempts, want 1", c.name, len(got.AttemptLog))
			}
			if c.state == pawltype.StateSucceeded && string(got.Result) != "320" {
				t.Errorf("%s: result %s, want 320", c.name, got.Result)
			}
		})
	}
}

func TestUndecodablePayloadIsPoison(t *testing.T) {
	mux := pawl.NewMux()
	pawl.Handle(mux, func(context.Context, *pawl.Task[resize]) error { return nil })
	got := pawltest.Run(t, mux, pawl.RawTask{Type: "resize", Payload: []byte(`{"width":"wide"}`)})
	if got.State != pawltype.StatePoisoned || got.Err == nil {
		t.Errorf("state %s, error %v, want poisoned and an error", got.State, got.Err)
	}
}

// TestFakeTime waits for neither a retry that is due in half an hour, nor a task that is due in three hours.
func TestFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := pawltest.New(t).Client(t)
		start := time.Now()
		var ran []time.Duration
		mux := pawl.NewMux()
		pawl.Handle(mux, func(_ context.Context, task *pawl.Task[resize]) error {
			ran = append(ran, time.Since(start).Round(time.Minute))
			if task.Args.Width == 1 && task.Attempt == 1 {
				return pawl.RetryIn(30*time.Minute, errors.New("not yet"))
			}
			return nil
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- pawl.NewWorker(client, mux, pawl.WorkerConfig{Concurrency: 1}).Run(ctx)
		}()
		retried, err := client.Enqueue(ctx, resize{Width: 1})
		if err != nil {
			t.Fatal(err)
		}
		later, err := client.Enqueue(ctx, resize{Width: 2}, pawl.In(3*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		for _, ref := range []*pawl.Ref{retried, later} {
			if _, err := ref.Wait(ctx); err != nil {
				t.Fatal(err)
			}
		}
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		want := []time.Duration{0, 30 * time.Minute, 3 * time.Hour}
		if len(ran) != len(want) || ran[0] != want[0] || ran[1] != want[1] || ran[2] != want[2] {
			t.Errorf("ran at %v, want %v", ran, want)
		}
	})
}

// TestRunInABubble checks that Run also works in a bubble.
func TestRunInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(ctx context.Context, _ *pawl.Task[resize]) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		got := pawltest.RunFunc(t, slow, resize{}, pawl.Timeout(time.Hour), pawl.MaxAttempts(1))
		if got.State != pawltype.StateDead || !errors.Is(got.Err, context.DeadlineExceeded) {
			t.Errorf("state %s, error %v, want dead after its timeout", got.State, got.Err)
		}
	})
}

// TestFakeTimeOfASchedule checks the times of a schedule, in its time zone, without waiting for them.
func TestFakeTimeOfASchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := pawltest.New(t).Client(t)
		ticks := make(chan string)
		mux := pawl.NewMux()
		pawl.Handle(mux, func(_ context.Context, task *pawl.Task[resize]) error {
			ticks <- task.Headers["pawl-schedule"] + " " + task.Headers["pawl-scheduled-at"] + " " + time.Now().UTC().Format(time.TimeOnly)
			return nil
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- pawl.NewWorker(client, mux, pawl.WorkerConfig{Concurrency: 1}).Run(ctx) }()
		_, err := admin.New(client).Schedules().Put(ctx, admin.ScheduleSpec{Name: "nightly", Cron: "30 2,3 * * *",
			TimeZone: "Europe/Berlin", Task: resize{Width: 1}})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"nightly 2000-01-01T01:30:00Z 01:30:00", "nightly 2000-01-01T02:30:00Z 02:30:00"} {
			if got := <-ticks; got != want {
				t.Errorf("the task ran as %s, want %s", got, want)
			}
		}
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

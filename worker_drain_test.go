package pawl_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

func TestDrainLetsHandlersFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		_, stop := work(t, client, handle(func(ctx context.Context, _ *pawl.Task[welcome]) error {
			time.Sleep(20 * time.Second)
			return ctx.Err()
		}), pawl.WorkerConfig{})
		ref := enqueue(t, client)
		synctest.Wait()
		begin := time.Now()
		go func() {
			time.Sleep(time.Second)
			enqueue(t, client) // while it drains
		}()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took != 20*time.Second {
			t.Errorf("draining took %s, want the 20 s of the handler", took)
		}
		if got := f.task(t, ref.ID).state; got != pawlv1.State_STATE_SUCCEEDED {
			t.Errorf("the task is %s, want succeeded", got)
		}
		if got := f.task(t, "t2"); got.fence != 0 {
			t.Errorf("a task enqueued during the drain was claimed: %+v", got)
		}
	})
}

func TestDrainReleasesUnfinishedTasks(t *testing.T) {
	for name, want := range map[string]time.Duration{"obedient": 10 * time.Second, "stubborn": 11 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, client := start(t)
				causes, release := make(chan error, 1), make(chan struct{})
				_, stop := work(t, client, handle(func(ctx context.Context, _ *pawl.Task[welcome]) error {
					<-ctx.Done()
					causes <- context.Cause(ctx)
					if name == "stubborn" {
						<-release
					}
					return ctx.Err()
				}), pawl.WorkerConfig{DrainTimeout: 10 * time.Second})
				ref := enqueue(t, client)
				synctest.Wait()
				begin := time.Now()
				if err := stop(); err != nil {
					t.Error(err)
				}
				if took := time.Since(begin); took != want {
					t.Errorf("draining took %s, want %s", took, want)
				}
				wantErr(t, "cause", <-causes, pawltype.ErrDraining)
				got, frames := f.task(t, ref.ID), f.frames()
				if got.state != pawlv1.State_STATE_READY || got.attempt != 1 || len(frames[len(frames)-1].Releases) != 1 {
					t.Errorf("the task is %s with attempt %d, want it released: ready with attempt 1", got.state, got.attempt)
				}
				close(release)
			})
		})
	}
}

// Tasks that the broker pushes before it knows that the worker is quiet are released immediately.
func TestDrainReleasesLatePushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		ran := 0
		_, stop := work(t, client, handle(func(context.Context, *pawl.Task[welcome]) error { ran++; return nil }), pawl.WorkerConfig{})
		f.set(func() { f.held = true })
		ref := enqueue(t, client)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if got := f.task(t, ref.ID); got.state != pawlv1.State_STATE_READY || ran != 0 || got.fence != 1 {
			t.Errorf("the task is %s with fence %d and ran %d times, want it released, 1 and 0", got.state, got.fence, ran)
		}
	})
}

// The responses to acks get lost with the connection. The acks are sent again on the new one, and a running task is acked there.
func TestReconnectResendsAcks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		proceed := make(chan struct{})
		w, stop := work(t, client, handle(func(ctx context.Context, t *pawl.Task[welcome]) error {
			if t.ID == "t3" {
				<-proceed
			}
			return ctx.Err()
		}), pawl.WorkerConfig{})
		enqueue(t, client)
		synctest.Wait()
		f.set(func() { f.loseAnswers = true })
		enqueue(t, client)
		enqueue(t, client)
		synctest.Wait()
		if got := w.Stats(); got.Unsettled != 1 || got.Running != 1 {
			t.Errorf("the stats are %+v, want one task unsettled and one running", got)
		}
		f.cut()
		f.set(func() { f.loseAnswers = false })
		time.Sleep(time.Second)
		close(proceed)
		synctest.Wait()
		if got := w.Stats(); got.Unsettled != 0 || got.Running != 0 || got.Reconnects != 1 {
			t.Errorf("the stats are %+v, want nothing unsettled or running after 1 reconnect", got)
		}
		for _, id := range []string{"t1", "t2", "t3"} {
			if got := f.task(t, id); got.state != pawlv1.State_STATE_SUCCEEDED || got.fence != 1 {
				t.Errorf("%s is %s after %d claims, want succeeded after 1", id, got.state, got.fence)
			}
		}
		acks := 0
		for _, r := range f.frames() {
			for _, a := range r.Acks {
				if a.TaskId == "t2" {
					acks++
				}
			}
		}
		if acks != 2 {
			t.Errorf("t2 was acked %d times, want 2, again on the new stream", acks)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// Without a connection, handlers keep running, and their outcomes are reported once there is one. A lease that expires
// meanwhile ends the context.
func TestLongOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		var log strings.Builder
		w, stop := work(t, client, handle(func(ctx context.Context, t *pawl.Task[welcome]) error {
			if t.ID == "t1" {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			time.Sleep(10 * time.Second)
			return t.SetResult("done")
		}), pawl.WorkerConfig{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		enqueue(t, client)
		enqueue(t, client)
		synctest.Wait()
		f.set(func() { f.greet = func(*pawlv1.WorkHello) error { return errUnavailable } })
		f.cut()
		time.Sleep(30 * time.Second)
		wantErr(t, "health after half a minute", w.Health(), nil)
		time.Sleep(time.Nanosecond)
		wantErr(t, "health", w.Health(), pawltype.ErrUnavailable)
		time.Sleep(90*time.Second - 1)
		wantErr(t, "health", w.Health(), pawltype.ErrUnavailable)
		if got := w.Stats(); got.Connected || got.Running != 0 || got.Unsettled != 2 || got.LeasesLost != 1 {
			t.Errorf("the stats are %+v, want two tasks unsettled and one lease lost", got)
		}
		f.set(func() { f.greet = nil })
		time.Sleep(10 * time.Second)
		if got := f.task(t, "t2"); string(got.result) != `"done"` {
			t.Errorf("t2 is %s with result %s, want done", got.state, got.result)
		}
		if got := f.task(t, "t1"); got.fence != 2 {
			t.Errorf("t1 is %s after %d claims, want it released and claimed again", got.state, got.fence)
		}
		if err := w.Health(); err != nil {
			t.Error(err)
		}
		f.set(func() { f.take(f.tasks["t1"], pawlv1.State_STATE_CANCELLED, "cancelled") })
		stop()
		if n := strings.Count(log.String(), "work stream broke"); n < 20 || strings.Contains(log.String(), "does not let") {
			t.Errorf("the log has %d broken streams in 2 min, want at least 20:\n%s", n, log.String())
		}
	})
}

// A broker that loses grants can't leave a worker without tasks, since a silent stream is reopened. That is not an error.
func TestSilentStreamIsReopened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		var log strings.Builder
		w, stop := work(t, client, handle(func(context.Context, *pawl.Task[welcome]) error { return nil }),
			pawl.WorkerConfig{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		f.set(func() {
			for s := range f.streams {
				s.credit = 0
			}
		})
		begin := time.Now()
		ref := enqueue(t, client)
		if _, err := ref.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > 80*time.Second || w.Stats().Reconnects != 1 {
			t.Errorf("the task took %s and %d reconnects, want at most 80 s and 1", took, w.Stats().Reconnects)
		}
		stop()
		if strings.Contains(log.String(), "level=WARN") {
			t.Errorf("the log has warnings:\n%s", log.String())
		}
	})
}

func TestWorkerLeavesDrainingBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		w, _ := work(t, client, handle(func(context.Context, *pawl.Task[welcome]) error { return nil }), pawl.WorkerConfig{})
		f.set(func() {
			for s := range f.streams {
				s.send(&pawlv1.WorkResponse{Draining: true})
			}
		})
		time.Sleep(time.Second)
		if got := w.Stats(); got.Reconnects != 1 || !got.Connected {
			t.Errorf("the stats are %+v, want 1 reconnect and a connection", got)
		}
		if _, err := enqueue(t, client).Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

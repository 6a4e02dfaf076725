package pawltest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/claims"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltest"
	"github.com/pawlq/pawl/pawltype"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// The span, the metric and the worker's log report the same outcome of a run. Only failures are reported as errors.
func TestOutcomesOfRuns(t *testing.T) {
	untilEnd := func(ctx context.Context, _ *pawl.Claim) error { <-ctx.Done(); return context.Cause(ctx) }
	var byHand *pawl.Client
	for name, c := range map[string]struct {
		handle pawl.Handler
		during func(w *traced, ref *pawl.Ref) // while it runs
		want   string
	}{
		"succeeds": {handle: func(context.Context, *pawl.Claim) error { return nil }, want: "succeeded; DEBUG task succeeded"},
		"fails": {handle: func(context.Context, *pawl.Claim) error { return errors.New("no route") },
			want: "failed error=*errors.errorString exception; WARN task failed: no route"},
		"panics": {handle: func(context.Context, *pawl.Claim) error { panic("oh") },
			want: "failed error=panic exception; WARN task failed: panic: oh"},
		"dies": {handle: func(context.Context, *pawl.Claim) error { return pawl.DeadLetter(errors.New("no route")) },
			want: "dead error=*errors.errorString exception; WARN task dead: no route"},
		"discards": {handle: func(context.Context, *pawl.Claim) error { return pawl.Discard(errors.New("no need")) },
			want: "discarded; INFO task discarded: no need"},
		"snoozes": {handle: func(context.Context, *pawl.Claim) error { return pawl.Snooze(time.Hour) },
			want: "snoozed; INFO task snoozed: snoozed for 1h0m0s"},
		"is cancelled": {untilEnd, cancel, "cancelled; INFO claim lost; INFO task cancelled: pawl: task cancelled"},
		"is cancelled, and says nothing": {func(ctx context.Context, _ *pawl.Claim) error { <-ctx.Done(); return nil }, cancel,
			"cancelled; INFO claim lost; INFO task cancelled"},
		"is cancelled, and says it failed": {func(ctx context.Context, _ *pawl.Claim) error {
			<-ctx.Done()
			return pawl.DeadLetter(errors.New("no route"))
		}, cancel,
			"cancelled; INFO claim lost; INFO task cancelled: no route"},
		"loses its lease": {func(ctx context.Context, c *pawl.Claim) error {
			if _, err := claims.New(byHand).Release(ctx, c, time.Hour); err != nil {
				return err
			}
			return untilEnd(ctx, c)
		}, nil, "lease_lost; WARN claim lost; INFO task lease_lost: pawl: lease lost: completed"},
		"is drained": {untilEnd, nil, "released; INFO task released: pawl: worker draining"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reader, log := metric.NewManualReader(), &logbook{}
				inSample(t, sdktrace.AlwaysSample(), func(w *traced) {
					byHand = w.broker.Client(w)
					ref, err := w.client.Enqueue(w.Context(), task, pawl.MaxAttempts(2))
					if err != nil {
						w.Fatal(err)
					}
					if c.during != nil {
						time.AfterFunc(10*time.Second, func() { c.during(w, ref) })
					}
					w.work(20*time.Second, map[string]pawl.Handler{"t": c.handle})
					if got := w.outcome() + w.logged(log); got != c.want {
						t.Errorf("the outcome is\n%s\nwant\n%s", got, c.want)
					}
					failed := strings.Contains(c.want, "error=")
					if got := measured(t, reader); strings.Contains(got, "messaging.process.duration process default error=") != failed {
						t.Errorf("the metrics are\n%s", got)
					}
				}, pawl.Telemetry{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))},
					pawl.DialOptions{Logger: slog.New(lossFirst{log.logger().Handler(), t})})
			})
		})
	}
}

// lossFirst checks that the loss of a claim is logged before its handler can know of it, so before all that the handler logs about it.
type lossFirst struct {
	slog.Handler
	t *testing.T
}

// Handle implements slog.Handler.
func (h lossFirst) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "claim lost" && ctx.Err() != nil {
		h.t.Errorf("the handler's context ended before the loss was logged: %v", context.Cause(ctx))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h lossFirst) WithAttrs(attrs []slog.Attr) slog.Handler {
	return lossFirst{h.Handler.WithAttrs(attrs), h.t}
}

func cancel(w *traced, ref *pawl.Ref) {
	if _, err := admin.New(w.client).Tasks().Cancel(w.Context(), ref.ID); err != nil {
		w.Error(err)
	}
}

// outcome returns the outcome of a run according to its span.
func (w *traced) outcome() string {
	said := w.attrs("process default")
	out := said["pawl.task.outcome"]
	for _, s := range w.spans.Ended() {
		if s.Name() != "process default" {
			continue
		}
		if failed := s.Status().Code == codes.Error; failed != (said["error.type"] != "") {
			w.Errorf("the span has the status %v, but the error.type %q", s.Status(), said["error.type"])
		} else if failed {
			out += " error=" + said["error.type"]
		}
		for _, e := range s.Events() {
			out += " " + e.Name
		}
	}
	return out
}

// logged returns the lines of a worker's log about tasks. Each must name the run.
func (w *traced) logged(log *logbook) (out string) {
	run := ""
	for _, s := range w.spans.Ended() {
		if s.Name() == "process default" {
			run = s.SpanContext().SpanID().String()
		}
	}
	for _, l := range log.lines(w.T, "") {
		if l["task_id"] == nil {
			continue
		}
		if l["span_id"] != run {
			w.Errorf("the log line %v has another span than its run, %s", l, run)
		}
		out += fmt.Sprintf("; %s %s", l["level"], l["msg"])
		if l["error"] != nil {
			out += fmt.Sprintf(": %s", l["error"])
		}
	}
	return out
}

// A result that fits into no message makes a dead letter, as one does that the broker refuses, and does not keep the worker from reporting.
func TestResultLargerThanAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := pawltest.RunFunc(t, func(_ context.Context, task *pawl.Task[resize]) error {
			task.SetRawResult("application/octet-stream", make([]byte, 16<<20))
			return nil
		}, resize{Width: 640})
		if last := r.AttemptLog[len(r.AttemptLog)-1].Error; r.State != pawltype.StateDead || last == nil || !strings.Contains(last.Message,
			"16777216 bytes exceed the message limit") {
			t.Errorf("the task is %s, its attempts are %+v, want a dead letter", r.State, r.AttemptLog)
		}
	})
}

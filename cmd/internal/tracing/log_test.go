package tracing

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// fakeExporter simulates outages.
type fakeExporter struct{ err error }

func (f *fakeExporter) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return f.err }

func (f *fakeExporter) Shutdown(context.Context) error { return nil }

// An outage of the collector logs two lines, however many batches it affects, and a flapping collector doesn't flood the log.
func TestTraceOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		fake := &fakeExporter{}
		w := &watchedExporter{SpanExporter: fake, log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: withoutTime}))}
		export := func(batches int, err error) {
			t.Helper()
			fake.err = err
			for range batches {
				if err := w.ExportSpans(t.Context(), make([]sdktrace.ReadOnlySpan, 10)); err != nil {
					t.Errorf("an error that was logged is also returned: %v", err)
				}
				time.Sleep(time.Second)
			}
		}
		gone := errors.New("connection refused")
		export(5, nil)
		export(90, gone)
		export(5, nil)
		for range 20 { // 40 s
			export(1, gone)
			export(1, nil)
		}
		time.Sleep(time.Minute)
		export(3, gone)
		if err := w.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		want := `level=WARN msg="traces are not exported" error="connection refused"
level=INFO msg="traces are exported again" spans_lost=900 after=1m30s
level=WARN msg="traces are not exported" error="connection refused"
level=INFO msg="traces are exported again" spans_lost=10 after=1s
level=WARN msg="traces are not exported" error="connection refused"
level=WARN msg="traces were not exported" spans_lost=220
`
		if out.String() != want {
			t.Errorf("the log is\n%swant\n%s", out.String(), want)
		}
	})
}

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// Messages of OpenTelemetry's packages are logged without their values.
func TestTraceComplaints(t *testing.T) {
	var out bytes.Buffer
	log := logr.New(errorSink{slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: withoutTime}))})
	log.Error(errors.New("missing ="), "parse headers", "input", "secret")
	log.V(warnings).Info("careful", "input", "secret")
	log.WithName("x").WithValues("input", "secret").V(4).Info("TracerProvider created")
	want := "level=WARN msg=OpenTelemetry problem=\"parse headers\" error=\"missing =\"\nlevel=WARN msg=OpenTelemetry problem=careful\n"
	if out.String() != want {
		t.Errorf("the log is %q, want %q", out.String(), want)
	}
}

package tracing

import (
	"context"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// outageEvery is the minimum time between two log lines about failing exports.
const outageEvery = time.Minute

// watchedExporter logs when spans stop arriving, and when they arrive again, instead of logging every batch. Spans lost
// in an outage that begins within outageEvery of the last one are counted with the next outage that is logged.
type watchedExporter struct {
	sdktrace.SpanExporter
	log *slog.Logger

	// Exports run one at a time, and Shutdown runs after the last.
	since  time.Time // start of the outage that was logged; zero: none
	logged time.Time // when an outage was last logged
	lost   int       // spans, in outages whose end was not logged
}

// ExportSpans returns no error, since it has logged it.
func (w *watchedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	now, err := time.Now(), w.SpanExporter.ExportSpans(ctx, spans)
	if err != nil {
		w.lost += len(spans)
		if w.since.IsZero() && (w.logged.IsZero() || now.Sub(w.logged) >= outageEvery) {
			w.since, w.logged = now, now
			w.log.Warn("traces are not exported", "error", err)
		}
		return nil
	}
	if !w.since.IsZero() {
		w.log.Info("traces are exported again", "spans_lost", w.lost, "after", now.Sub(w.since).Round(time.Second).String())
		w.since, w.lost = time.Time{}, 0
	}
	return nil
}

// Shutdown logs how many spans have not arrived.
func (w *watchedExporter) Shutdown(ctx context.Context) error {
	if w.lost > 0 {
		w.log.Warn("traces were not exported", "spans_lost", w.lost)
	}
	return w.SpanExporter.Shutdown(ctx)
}

// logErrors sends the errors of OpenTelemetry's packages to log instead of standard error.
func logErrors(log *slog.Logger) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("OpenTelemetry", "error", err) }))
	otel.SetLogger(logr.New(errorSink{log}))
}

// errorSink is a logr.LogSink for errors and warnings. It drops their key-value pairs, which may contain secrets from the settings.
type errorSink struct{ log *slog.Logger }

// warnings is OpenTelemetry's level for warnings. Higher levels are informational.
const warnings = 1

// Init implements logr.LogSink.
func (errorSink) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink.
func (errorSink) Enabled(level int) bool { return level <= warnings }

// Info implements logr.LogSink.
func (c errorSink) Info(_ int, msg string, _ ...any) { c.log.Warn("OpenTelemetry", "problem", msg) }

// Error implements logr.LogSink.
func (c errorSink) Error(err error, msg string, _ ...any) {
	c.log.Warn("OpenTelemetry", "problem", msg, "error", err)
}

// WithValues implements logr.LogSink.
func (c errorSink) WithValues(...any) logr.LogSink { return c }

// WithName implements logr.LogSink.
func (c errorSink) WithName(string) logr.LogSink { return c }

package tracing

import (
	"context"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// outageEvery is how often at most the log tells that traces are not exported.
const outageEvery = time.Minute

// watchedExporter tells the log when spans no longer arrive, and when they do again; not of each batch, of which there are many. An
// outage that begins within outageEvery of the last one is counted with the next that is told.
type watchedExporter struct {
	sdktrace.SpanExporter
	log *slog.Logger

	// Exports come one after the other, and Shutdown after the last.
	since time.Time // that the log knows of an outage; zero: it knows of none
	told  time.Time // when an outage was told last
	lost  int       // spans, in outages whose end was not told
}

// ExportSpans returns no error: it has been told.
func (w *watchedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	now, err := time.Now(), w.SpanExporter.ExportSpans(ctx, spans)
	if err != nil {
		w.lost += len(spans)
		if w.since.IsZero() && (w.told.IsZero() || now.Sub(w.told) >= outageEvery) {
			w.since, w.told = now, now
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

// Shutdown tells what did not arrive until the end.
func (w *watchedExporter) Shutdown(ctx context.Context) error {
	if w.lost > 0 {
		w.log.Warn("traces were not exported", "spans_lost", w.lost)
	}
	return w.SpanExporter.Shutdown(ctx)
}

// logErrors has what OpenTelemetry's packages complain of go to log, in place of lines of their own on standard error.
func logErrors(log *slog.Logger) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces", "error", err) }))
	otel.SetLogger(logr.New(complaints{log}))
}

// complaints is a logr.LogSink for errors and warnings. It leaves out what goes with them: that may be a secret of the settings.
type complaints struct{ log *slog.Logger }

// warnings is the level of OpenTelemetry's: what is above tells of what goes well.
const warnings = 1

// Init implements logr.LogSink.
func (complaints) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink.
func (complaints) Enabled(level int) bool { return level <= warnings }

// Info implements logr.LogSink.
func (c complaints) Info(_ int, msg string, _ ...any) { c.log.Warn("traces", "problem", msg) }

// Error implements logr.LogSink.
func (c complaints) Error(err error, msg string, _ ...any) {
	c.log.Warn("traces", "problem", msg, "error", err)
}

// WithValues implements logr.LogSink.
func (c complaints) WithValues(...any) logr.LogSink { return c }

// WithName implements logr.LogSink.
func (c complaints) WithName(string) logr.LogSink { return c }

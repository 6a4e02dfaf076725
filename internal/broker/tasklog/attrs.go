package tasklog

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/task"
)

// Log lines about a task use the same attributes everywhere; docs/tracing.md lists them. Of the data from producers and handlers,
// only a dead letter's error and its headers in Config.LogHeaders are ever logged: no payload, result, checkpoint or
// token, and no other header's value.

// Attrs returns the attributes of a line about a task. attempt is the attempt that the line is about; 0: none.
func Attrs(ns string, id task.ID, queue, typ string, attempt int, headers map[string]string) []any {
	attrs := []any{"task_id", id.String(), "namespace", ns, "queue", queue, "type", typ}
	if attempt > 0 {
		attrs = append(attrs, "attempt", attempt)
	}
	return append(attrs, Trace(headers)...)
}

// OfView returns the attributes of a line about a task that was read.
func OfView(v *query.View) []any {
	attempt := 0
	switch n := len(v.Attempts); {
	case v.Exec.State == task.Claimed || v.Exec.State == task.Succeeded:
		attempt = v.Exec.Attempt()
	case n > 0:
		attempt = v.Attempts[n-1].Number
	}
	return Attrs(v.Namespace, v.ID, v.Queue, v.Type, attempt, v.Headers)
}

// Trace returns the attributes of the trace named in a task's headers, if there is one.
func Trace(headers map[string]string) []any {
	if headers[task.HeaderTraceParent] == "" {
		return nil
	}
	of := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier(headers)))
	if !of.IsValid() {
		return nil
	}
	return []any{"trace_id", of.TraceID().String(), "span_id", of.SpanID().String()}
}

// Dead writes the log line of a dead letter, with the named headers.
func Dead(log *slog.Logger, d *engine.DeadLetter, headers []string) {
	used := d.Exec.Failures + d.Exec.Crashes
	attrs := append(Attrs(d.Namespace, d.ID, d.Exec.Queue, d.Exec.Type, used, d.Headers), "reason", d.Exec.Reason,
		"failures", d.Exec.Failures, "crashes", d.Exec.Crashes, "worker", d.Exec.Claim.Worker, "error", task.Cut(d.Failure.Message, 1024))
	if d.Failure.Type != "" {
		attrs = append(attrs, "error_type", d.Failure.Type)
	}
	log.Warn("task dead-lettered", append(attrs, headerAttrs(headers, d.Headers)...)...)
}

// Package tasktrace creates the spans of tasks: of their enqueues, waits, claims and ends, in the traces that their headers name.
//
// It works from the requests and answers of calls, and knows no shards.
package tasktrace

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/task"
)

// A node's spans are about single tasks, in the trace that a task's headers name: "enqueue", then for each attempt "wait" (from
// ready to claimed), "claim" (from claimed to sent to the worker) and "ack", "fail" or "release". All are created here, where a
// call arrives, from its answer: the shards do nothing for them, and without a tracer they cost nothing.

// w3c is the encoding of a trace in headers, of tasks and of calls.
var w3c propagation.TraceContext

// Attributes that the semantic conventions don't have; the SDK uses the same.
const (
	attrTaskAttempt   = attribute.Key("pawl.task.attempt")
	attrTaskDuplicate = attribute.Key("pawl.task.duplicate")
	attrShard         = attribute.Key("pawl.shard")
)

// traceOf returns the trace that a task's headers name; not valid if they name none.
func traceOf(headers map[string]string) trace.SpanContext {
	if headers[task.HeaderTraceParent] == "" {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(w3c.Extract(context.Background(), propagation.MapCarrier(headers)))
}

// callTrace returns the trace that the headers of a call name; not valid if they name none.
func callTrace(ctx context.Context) trace.SpanContext {
	parent := callinfo.Header(ctx, task.HeaderTraceParent)
	if parent == "" {
		return trace.SpanContext{}
	}
	return traceOf(map[string]string{task.HeaderTraceParent: parent, task.HeaderTraceState: callinfo.Header(ctx, task.HeaderTraceState)})
}

// headersFor encodes a trace as headers.
func headersFor(s trace.SpanContext) map[string]string {
	if !s.IsValid() {
		return nil
	}
	carrier := propagation.MapCarrier{}
	w3c.Inject(trace.ContextWithSpanContext(context.Background(), s), carrier)
	return carrier
}

// JoinCall puts tasks without a trace into that of their call, if it has one.
func JoinCall(ctx context.Context, tasks ...*pawlv1.TaskSpec) {
	if callinfo.Of(ctx).Frame { // the trace of a stream is not that of its tasks
		return
	}
	of := headersFor(callTrace(ctx))
	if of == nil {
		return
	}
	for _, t := range tasks {
		if t != nil {
			t.Headers = task.WithTrace(t.Headers, of)
		}
	}
}

// Spans creates the spans of a node.
type Spans struct {
	Tracer   trace.Tracer       // nil: no spans
	Registry *registry.Registry // of this node's workers
	Batch    int                // tasks in a call
}

// enqueueSpans are the spans of a call's tasks, nil for a task that has none.
type enqueueSpans []trace.Span

// Enqueue starts a span for each task. A task without a trace starts a new one.
func (g Spans) Enqueue(ctx context.Context, tasks ...*pawlv1.TaskSpec) enqueueSpans {
	JoinCall(ctx, tasks...)
	if g.Tracer == nil || len(tasks) > g.Batch { // too many are refused
		return nil
	}
	spans := make(enqueueSpans, len(tasks))
	for i, t := range tasks {
		if t == nil {
			continue
		}
		of := traceOf(t.GetHeaders())
		queue := t.GetQueue()
		if queue == "" {
			queue = task.DefaultQueue
		}
		begun, span := g.Tracer.Start(trace.ContextWithRemoteSpanContext(context.WithoutCancel(ctx), of), "enqueue "+queue,
			trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(broker.SpanAttrs("enqueue", queue, t.GetType())...))
		if !of.IsValid() {
			t.Headers = task.WithTrace(t.Headers, headersFor(trace.SpanContextFromContext(begun)))
		}
		if span.IsRecording() {
			span.SetAttributes(semconv.MessagingMessageBodySize(len(t.GetPayload())))
			spans[i] = span
		} else {
			span.End()
		}
	}
	return spans
}

// End ends the spans with the results of their tasks, in the same order. Err is that of the whole call.
func (s enqueueSpans) End(answers []*pawlv1.EnqueueResult, err error) {
	for i, span := range s {
		switch {
		case span == nil:
			continue
		case err != nil:
			refuse(span, err)
		case answers[i].GetError() != nil:
			refused := answers[i].GetError()
			refuse(span, &task.Error{Code: task.Code(refused.GetCode()), Message: refused.GetMessage()})
		case answers[i].GetTask() != nil: // else it is on its way to another shard
			span.SetAttributes(semconv.MessagingMessageID(answers[i].GetTask().GetTaskId()),
				attrTaskDuplicate.Bool(answers[i].GetTask().GetDuplicate()))
		}
		span.End()
	}
}

// EndOne is end for a call with one task.
func (s enqueueSpans) EndOne(answer *pawlv1.EnqueueResponse, err error) {
	if s != nil {
		s.End([]*pawlv1.EnqueueResult{{Task: answer.GetTask()}}, err)
	}
}

// Cancel creates the span of a call that cancelled a task: the end of its trace if it never ran. It links to the trace of the
// call.
func (g Spans) Cancel(ctx context.Context, v *broker.View, began time.Time) {
	of := traceOf(v.Headers)
	if g.Tracer == nil || !of.IsValid() {
		return
	}
	start := []trace.SpanStartOption{trace.WithTimestamp(began), trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(broker.SpanAttrs("cancel", v.Queue, v.Type)...),
		trace.WithAttributes(semconv.MessagingMessageID(v.ID.String()),
			attrShard.Int64(int64(v.ID.Shard())))}
	if by := callTrace(ctx); by.IsValid() {
		start = append(start, trace.WithLinks(trace.Link{SpanContext: by}))
	}
	_, span := g.Tracer.Start(trace.ContextWithRemoteSpanContext(context.Background(), of), "cancel "+v.Queue, start...)
	span.End()
}

// maxSpanText bounds the error text of a span.
const maxSpanText = 1 << 10

// refuse marks a span as that of a refused call. For an internal error it has no more text than the caller gets.
func refuse(span trace.Span, err error) {
	if e, ok := task.AsError(err); ok {
		span.SetAttributes(semconv.ErrorTypeKey.String(string(e.Code)))
		span.SetStatus(codes.Error, task.Cut(e.Message, maxSpanText))
		return
	}
	span.SetAttributes(semconv.ErrorTypeKey.String(string(contract.CodeInternal)))
	span.SetStatus(codes.Error, "")
}

package telemetry

import (
	"context"
	"log/slog"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/pawltype"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// A run of a task is a span "process", a child of the task's creation context, and its end is reported by an "ack",
// "fail" or "release" below it. The handler's context contains the former, so that what a handler enqueues is part of
// the same trace.

// Task is what spans report about a task.
type Task struct {
	ID, Type, Queue string
	Attempt         int
	Size            int // of the payload, in bytes
	Headers         map[string]string
}

// TaskOf returns what spans report about a claimed task.
func TaskOf(p *pawlv1.ClaimedTask) Task {
	return Task{ID: p.GetTaskId(), Type: p.GetType(), Queue: p.GetQueue(), Attempt: int(p.GetAttempt()), Size: len(p.GetPayload()),
		Headers: p.GetHeaders()}
}

// Extract returns the context of a task's run, with the trace in the task's headers.
func (t *Telemetry) Extract(ctx context.Context, c Task) context.Context {
	if len(c.Headers) == 0 {
		return ctx
	}
	return t.carry.Extract(ctx, propagation.MapCarrier(c.Headers))
}

// WithoutSpan hides the program's own span from the runs of its worker: they belong to the traces of their tasks.
func WithoutSpan(ctx context.Context) context.Context {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return trace.ContextWithSpanContext(ctx, trace.SpanContext{})
}

// Process starts the span of a run.
func (t *Telemetry) Process(ctx context.Context, c Task, worker string) (context.Context, Span) {
	var more []trace.SpanStartOption
	if t.linked {
		more = append(more, trace.WithNewRoot())
		if origin := trace.SpanContextFromContext(ctx); origin.IsValid() {
			more = append(more, linkTo(origin))
		}
	}
	ctx, o := t.begin(ctx, VerbProcess, c.Queue, more...)
	if o.span.IsRecording() {
		o.span.SetAttributes(attrTaskType.String(c.Type), attrTaskAttempt.Int(c.Attempt), semconv.MessagingMessageID(c.ID),
			semconv.MessagingMessageBodySize(c.Size), semconv.MessagingClientID(worker))
	}
	if !o.began.IsZero() {
		t.consumed.AddSet(ctx, 1, o.op.labels)
	}
	return ctx, o
}

// Recording reports whether the span is recorded or measured.
func (o Span) Recording() bool { return o.span.IsRecording() || !o.began.IsZero() }

// Processed ends the span of a run. A run that has not failed, because it was cancelled or snoozed its task for
// example, has no error here: it must not count as an error or exception.
func (o Span) Processed(outcome pawltype.Outcome, err error) {
	if !outcome.Failed() {
		err = nil
	}
	if o.span.IsRecording() {
		o.span.SetAttributes(attrTaskOutcome.String(string(outcome)))
		o.recordError(err)
	}
	o.endSpan(err)
	if !o.began.IsZero() {
		o.t.runs.RecordSet(context.Background(), time.Since(o.began).Seconds(), o.labels(err))
	}
}

// recordError adds the error as the attempt log has it.
func (o Span) recordError(err error) {
	if err == nil {
		return
	}
	failure := convert.TaskError(err)
	attrs := []attribute.KeyValue{semconv.ExceptionType(failure.GetType()), semconv.ExceptionMessage(failure.GetMessage())}
	if failure.GetStack() != "" {
		attrs = append(attrs, semconv.ExceptionStacktrace(failure.GetStack()))
	}
	o.span.AddEvent("exception", trace.WithAttributes(attrs...))
}

// Settled makes the span of an ending that was sent over a stream, once the broker has answered.
func (t *Telemetry) Settled(run trace.SpanContext, c Task, v Verb, sent time.Time, err error) {
	ctx := trace.ContextWithSpanContext(context.Background(), run)
	_, o := t.begin(ctx, v, c.Queue, trace.WithTimestamp(sent))
	describeClaim(o.span, c)
	if !o.began.IsZero() {
		o.began = sent
	}
	o.End(err)
}

func describeClaim(span trace.Span, c Task) {
	if span.IsRecording() {
		span.SetAttributes(attrTaskType.String(c.Type), attrTaskAttempt.Int(c.Attempt), semconv.MessagingMessageID(c.ID))
	}
}

// Settle starts the span of an ending that has its own call, and propagates it to the broker.
func (t *Telemetry) Settle(ctx context.Context, c Task, v Verb) (context.Context, Span) {
	ctx, o := t.begin(ctx, v, c.Queue)
	describeClaim(o.span, c)
	return t.injectCall(ctx), o
}

// SettleMany starts the span of a call with many endings.
func (t *Telemetry) SettleMany(ctx context.Context, n int) (context.Context, Span) {
	ctx, o := t.begin(ctx, VerbSettle, "", trace.WithAttributes(semconv.MessagingBatchMessageCount(n)))
	return t.injectCall(ctx), o
}

// injectCall propagates the trace of ctx with a call.
func (t *Telemetry) injectCall(ctx context.Context) context.Context {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	for name, value := range carrier {
		ctx = metadata.AppendToOutgoingContext(ctx, name, value)
	}
	return ctx
}

// Claimed makes the span of a claim call that got tasks or failed, after the fact: one that waits in vain has none.
func (t *Telemetry) Claimed(ctx context.Context, queues []*pawlv1.QueueShare, began time.Time, got []*pawlv1.ClaimedTask, err error) {
	if len(got) == 0 && err == nil {
		return
	}
	queue := ""
	if len(queues) == 1 {
		queue = queues[0].GetQueue()
	}
	more := []trace.SpanStartOption{trace.WithTimestamp(began), trace.WithAttributes(semconv.MessagingBatchMessageCount(len(got)))}
	_, o := t.begin(ctx, VerbClaim, queue, more...)
	if o.span.IsRecording() {
		for _, p := range got[:min(len(got), maxLinks)] {
			if origin := t.headerTrace(p.GetHeaders()); origin.IsValid() {
				o.span.AddLink(trace.Link{SpanContext: origin})
			}
		}
	}
	if !o.began.IsZero() {
		o.began = began
		t.consumed.AddSet(ctx, int64(len(got)), o.labels(err))
	}
	o.End(err)
}

// LogTrace adds the trace to a logger for lines about a task.
func LogTrace(log *slog.Logger, of trace.SpanContext) *slog.Logger {
	if !of.IsValid() {
		return log
	}
	return log.With("trace_id", of.TraceID().String(), "span_id", of.SpanID().String())
}

// SettleError returns the error for the span of an ending.
func SettleError(p *pawlv1.Settled) error {
	if e := p.GetError(); e != nil {
		return convert.Error(e)
	}
	return nil
}

package pawl

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// A run of a task is a span "process", a child of the task's creation context, and its end is told by an "ack", "fail" or "release"
// below it. The former is what the handler's context has, so that what a handler enqueues is part of the same trace.

// arrive puts the trace of a claim into the context of its run.
func (t *telemetry) arrive(ctx context.Context, c *Claim) context.Context {
	if len(c.Headers) == 0 {
		return ctx
	}
	return t.carry.Extract(ctx, propagation.MapCarrier(c.Headers))
}

// withoutSpan hides the span of a program's own from the runs of its worker: they belong to the traces of their tasks.
func withoutSpan(ctx context.Context) context.Context {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return trace.ContextWithSpanContext(ctx, trace.SpanContext{})
}

// process begins the span of a run.
func (t *telemetry) process(ctx context.Context, c *Claim, worker string) (context.Context, observed) {
	var more []trace.SpanStartOption
	if t.linked {
		more = append(more, trace.WithNewRoot())
		if origin := trace.SpanContextFromContext(ctx); origin.IsValid() {
			more = append(more, linkTo(origin))
		}
	}
	ctx, o := t.begin(ctx, verbProcess, c.Queue, more...)
	if o.span.IsRecording() {
		o.span.SetAttributes(attrTaskType.String(c.Type), attrTaskAttempt.Int(c.Attempt), semconv.MessagingMessageID(c.ID),
			semconv.MessagingMessageBodySize(len(c.Payload)), semconv.MessagingClientID(worker))
	}
	if !o.began.IsZero() {
		t.consumed.AddSet(ctx, 1, o.op.labels)
	}
	return ctx, o
}

// wanted says whether somebody listens.
func (o observed) wanted() bool { return o.span.IsRecording() || !o.began.IsZero() }

// processed ends the span of a run. The error of one that has not failed, but was cancelled or snoozed its task, say, is none here: who counts
// errors and exceptions must not find them.
func (o observed) processed(outcome Outcome, err error) {
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

// recordError adds what the attempt log says of an error.
func (o observed) recordError(err error) {
	if err == nil {
		return
	}
	said := taskErrorOf(err)
	attrs := []attribute.KeyValue{semconv.ExceptionType(said.GetType()), semconv.ExceptionMessage(said.GetMessage())}
	if said.GetStack() != "" {
		attrs = append(attrs, semconv.ExceptionStacktrace(said.GetStack()))
	}
	o.span.AddEvent("exception", trace.WithAttributes(attrs...))
}

// verb is that of its span.
func (e ending) operation() verb {
	switch {
	case e.ack != nil:
		return verbAck
	case e.fail != nil:
		return verbFail
	default:
		return verbRelease
	}
}

// settled makes the span of an ending that a stream told and the broker has answered, after the fact.
func (t *telemetry) settled(run trace.SpanContext, c *Claim, v verb, told time.Time, err error) {
	ctx := trace.ContextWithSpanContext(context.Background(), run)
	_, o := t.begin(ctx, v, c.Queue, trace.WithTimestamp(told))
	describeClaim(o.span, c)
	if !o.began.IsZero() {
		o.began = told
	}
	o.end(err)
}

func describeClaim(span trace.Span, c *Claim) {
	if span.IsRecording() {
		span.SetAttributes(attrTaskType.String(c.Type), attrTaskAttempt.Int(c.Attempt), semconv.MessagingMessageID(c.ID))
	}
}

// settle begins the span of an ending that has a call of its own, and lets the broker know of it.
func (t *telemetry) settle(ctx context.Context, c *Claim, v verb) (context.Context, observed) {
	ctx, o := t.begin(ctx, v, c.Queue)
	describeClaim(o.span, c)
	return t.tellCall(ctx), o
}

// settleMany begins the span of a call with many endings.
func (t *telemetry) settleMany(ctx context.Context, n int) (context.Context, observed) {
	ctx, o := t.begin(ctx, verbSettle, "", trace.WithAttributes(semconv.MessagingBatchMessageCount(n)))
	return t.tellCall(ctx), o
}

// tellCall sends the trace of ctx along with a call.
func (t *telemetry) tellCall(ctx context.Context) context.Context {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	said := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, said)
	for name, value := range said {
		ctx = metadata.AppendToOutgoingContext(ctx, name, value)
	}
	return ctx
}

// claimed makes the span of a claim by hand that got something or failed, after the fact: one that waits in vain says nothing.
func (t *telemetry) claimed(ctx context.Context, r *ClaimRequest, began time.Time, got []*pawlv1.ClaimedTask, err error) {
	if len(got) == 0 && err == nil {
		return
	}
	queue := ""
	if shares, _ := r.Queues.shares(); len(shares) == 1 {
		queue = shares[0].GetQueue()
	}
	more := []trace.SpanStartOption{trace.WithTimestamp(began), trace.WithAttributes(semconv.MessagingBatchMessageCount(len(got)))}
	_, o := t.begin(ctx, verbClaim, queue, more...)
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
	o.end(err)
}

// logTrace adds to a log's line about a task which trace it belongs to.
func logTrace(log *slog.Logger, of trace.SpanContext) *slog.Logger {
	if !of.IsValid() {
		return log
	}
	return log.With("trace_id", of.TraceID().String(), "span_id", of.SpanID().String())
}

// outcomeError is what a span of an ending tells of its refusal.
func outcomeError(p *pawlv1.Settled) error {
	if e := p.GetError(); e != nil {
		return errorOf(e)
	}
	return nil
}

package broker

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/task"
)

// Attributes of spans for which the conventions have no name. The SDK uses the same.
const (
	attrTaskType = attribute.Key("pawl.task.type")
	attrSchedule = attribute.Key("pawl.schedule")
)

// SpanAttrs returns the attributes common to all spans about a task.
func SpanAttrs(verb, queue, typ string) []attribute.KeyValue {
	return []attribute.KeyValue{semconv.MessagingSystemKey.String("pawl"), semconv.MessagingOperationName(verb),
		semconv.MessagingDestinationName(queue), attrTaskType.String(typ)}
}

// tickTraces starts the traces of ticks. No call brings those tasks, so no gateway can. A span starts when its tick is decided, since
// its ids go into the task's row, and is exported only if the tick is committed. Nil: nothing is traced. The shard's loop owns it.
type tickTraces struct {
	tracer trace.Tracer
	begun  map[string]trace.Span // in the current round, by traceparent
}

func newTickTraces(tracer trace.Tracer) *tickTraces {
	if tracer == nil {
		return nil
	}
	return &tickTraces{tracer: tracer, begun: map[string]trace.Span{}}
}

// begin starts the trace of a tick's task and returns it as headers.
func (t *tickTraces) begin(schedule string, n *engine.NewTask) map[string]string {
	ctx, span := t.tracer.Start(context.Background(), "create "+n.Queue, trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(append(SpanAttrs("create", n.Queue, n.Type), semconv.MessagingOperationTypeCreate,
			attrSchedule.String(schedule))...))
	headers := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, headers)
	if span.IsRecording() {
		span.SetAttributes(semconv.MessagingMessageBodySize(len(n.Payload)))
		t.begun[headers[task.HeaderTraceParent]] = span
	}
	return headers
}

// forget drops the spans of a round that was not committed, and of ticks that created no task.
func (t *tickTraces) forget() {
	if t != nil {
		clear(t.begun)
	}
}

// end ends the spans of committed ticks.
func (t *tickTraces) end(ticked []engine.Ticked) {
	if t == nil {
		return
	}
	for i := range ticked {
		span := t.begun[ticked[i].Trace]
		if span == nil {
			continue
		}
		if id := ticked[i].Task; id != (task.ID{}) { // otherwise it is on its way to another shard
			span.SetAttributes(semconv.MessagingMessageID(id.String()))
		}
		span.End()
	}
	t.forget()
}

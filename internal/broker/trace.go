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

// Attributes of spans for which the conventions have no name; the SDK has the same.
const (
	attrTaskType = attribute.Key("pawl.task.type")
	attrSchedule = attribute.Key("pawl.schedule")
)

// SpanAttrs are the attributes that each span about a task has.
func SpanAttrs(verb, queue, typ string) []attribute.KeyValue {
	return []attribute.KeyValue{semconv.MessagingSystemKey.String("pawl"), semconv.MessagingOperationName(verb),
		semconv.MessagingDestinationName(queue), attrTaskType.String(typ)}
}

// tickTraces begin the traces of ticks: no call brings those tasks, so that no gateway can. A span is begun when its tick is decided, since
// its ids go into the task's row, and is told only if that was committed. Nil: nobody traces. The shard's loop owns it.
type tickTraces struct {
	tracer trace.Tracer
	begun  map[string]trace.Span // of the round that runs, by traceparent
}

func newTickTraces(tracer trace.Tracer) *tickTraces {
	if tracer == nil {
		return nil
	}
	return &tickTraces{tracer: tracer, begun: map[string]trace.Span{}}
}

// begin makes the trace of a tick's task, as headers.
func (t *tickTraces) begin(schedule string, n *engine.NewTask) map[string]string {
	ctx, span := t.tracer.Start(context.Background(), "create "+n.Queue, trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(append(SpanAttrs("create", n.Queue, n.Type), semconv.MessagingOperationTypeCreate, attrSchedule.String(schedule))...))
	headers := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, headers)
	if span.IsRecording() {
		span.SetAttributes(semconv.MessagingMessageBodySize(len(n.Payload)))
		t.begun[headers[task.HeaderTraceParent]] = span
	}
	return headers
}

// forget lets go of the spans of a round that did not come to be, and of ticks that made no task.
func (t *tickTraces) forget() {
	if t != nil {
		clear(t.begun)
	}
}

// tell ends the spans of ticks that are committed.
func (t *tickTraces) tell(ticked []engine.Ticked) {
	if t == nil {
		return
	}
	for i := range ticked {
		span := t.begun[ticked[i].Trace]
		if span == nil {
			continue
		}
		if id := ticked[i].Task; id != (task.ID{}) { // else it is on its way to another shard
			span.SetAttributes(semconv.MessagingMessageID(id.String()))
		}
		span.End()
	}
	t.forget()
}

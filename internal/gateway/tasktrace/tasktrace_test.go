package tasktrace

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/task"
)

// idleTracer creates spans that record nothing, and counts their ends.
type idleTracer struct {
	noop.Tracer
	ended, told int
}

type idleSpan struct {
	noop.Span
	of *idleTracer
}

func (t *idleTracer) Start(ctx context.Context, _ string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	return ctx, idleSpan{of: t}
}

func (s idleSpan) End(...trace.SpanEndOption) { s.of.ended++ }

func (s idleSpan) SetAttributes(...attribute.KeyValue) { s.of.told++ }

// A span that records nothing ends immediately.
func TestUnrecordedSpans(t *testing.T) {
	idle := &idleTracer{}
	g := Spans{Tracer: idle, Batch: 1000}
	ctx, _ := callinfo.Begin(t.Context(), task.InterfaceGRPC, "test")
	spans := g.Enqueue(ctx, &pawlv1.TaskSpec{Type: "a"}, nil, &pawlv1.TaskSpec{Type: "b"})
	if idle.ended != 2 {
		t.Errorf("%d spans have ended after Enqueue, want 2", idle.ended)
	}
	if spans.End(make([]*pawlv1.EnqueueResult, 3), nil); idle.ended != 2 {
		t.Errorf("%d spans have ended after End, want 2", idle.ended)
	}
	of := traceOf(map[string]string{task.HeaderTraceParent: someTrace})
	g.pastSpan(of, "wait", &broker.Claimed{Envelope: &schema.Envelope{}, Exec: &schema.Exec{Claim: schema.Claim{Worker: "w"}}},
		time.Unix(2, 0), time.Unix(1, 0))
	repeated := broker.Claimed{Envelope: &schema.Envelope{Headers: map[string]string{task.HeaderTraceParent: someTrace}},
		Exec: &schema.Exec{Claim: schema.Claim{Repeated: true}}}
	g.Claims([]broker.Claimed{repeated}) // the first claim already had its spans
	held := Holdings{of: map[task.ID]holding{{1}: {trace: of}}}
	g.Settled(&held, broker.Ack, task.ID{1}, time.Now(), nil)
	if idle.ended != 4 || idle.told != 0 {
		t.Errorf("%d spans have ended, want 4; attributes were set %d times, want none", idle.ended, idle.told)
	}
}

// An invalid trace context has no headers.
func TestHeadersWithoutTrace(t *testing.T) {
	if got := headersFor(trace.SpanContext{}); got != nil {
		t.Errorf("headersFor an invalid trace context = %v, want none", got)
	}
}

const someTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

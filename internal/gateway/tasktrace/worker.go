package tasktrace

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
)

// Claims creates the spans of tasks sent to a worker: how long each waited, and how long it was on its way. Tasks without a
// trace get none, nor do claims that are returned again.
func (g Spans) Claims(claimed []broker.Claimed) {
	if g.Tracer == nil {
		return
	}
	now := time.Now()
	for i := range claimed {
		c := &claimed[i]
		of := traceOf(c.Headers)
		if !of.IsValid() || c.Exec.Claim.Repeated {
			continue
		}
		claimed := c.Exec.Claim.At.Time()
		g.pastSpan(of, "wait", c, c.Exec.ReadyAt.Time(), claimed)
		g.pastSpan(of, "claim", c, claimed, now)
	}
}

// pastSpan creates a span of something that is over.
func (g Spans) pastSpan(of trace.SpanContext, verb string, c *broker.Claimed, from, to time.Time) {
	_, span := g.Tracer.Start(trace.ContextWithRemoteSpanContext(context.Background(), of), verb+" "+c.Queue, trace.WithTimestamp(from),
		trace.WithSpanKind(trace.SpanKindInternal), trace.WithAttributes(broker.SpanAttrs(verb, c.Queue, c.Type)...))
	if span.IsRecording() {
		span.SetAttributes(semconv.MessagingMessageID(c.ID.String()), attrTaskAttempt.Int(c.Exec.Attempt()),
			attrShard.Int64(int64(c.ID.Shard())))
		if c.Exec.Claim.Worker != "" {
			span.SetAttributes(semconv.MessagingClientID(c.Exec.Claim.Worker))
		}
	}
	if to.Before(from) { // clocks of two nodes
		to = from
	}
	span.End(trace.WithTimestamp(to))
}

// settleSpan is the span of a call that ends claims; nil: it has none.
type settleSpan struct{ span trace.Span }

// Settle starts the span of a call that ends a claim, in the trace that the call names: finding out the task's would cost a
// read. The queue is known if the task was claimed through this node.
func (g Spans) Settle(ctx context.Context, verb string, h *broker.Hold) *settleSpan {
	if g.Tracer == nil {
		return nil
	}
	attrs := []attribute.KeyValue{semconv.MessagingMessageID(h.ID.String()), attrShard.Int64(int64(h.ID.Shard()))}
	run, known := g.Registry.Holding(h.ID, h.Token)
	if !known {
		return g.startSettle(ctx, verb, append(attrs, semconv.MessagingSystemKey.String("pawl"), semconv.MessagingOperationName(verb)))
	}
	return g.startSettle(ctx, verb+" "+run.Queue, append(append(attrs, broker.SpanAttrs(verb, run.Queue, run.Type)...),
		attrTaskAttempt.Int(run.Attempt)))
}

// SettleMany is Settle for a call that ends n claims.
func (g Spans) SettleMany(ctx context.Context, n int) *settleSpan {
	if g.Tracer == nil {
		return nil
	}
	return g.startSettle(ctx, "settle", []attribute.KeyValue{semconv.MessagingSystemKey.String("pawl"),
		semconv.MessagingOperationName("settle"), semconv.MessagingBatchMessageCount(n)})
}

func (g Spans) startSettle(ctx context.Context, name string, attrs []attribute.KeyValue) *settleSpan {
	of := callTrace(ctx)
	if !of.IsValid() {
		return nil
	}
	_, span := g.Tracer.Start(trace.ContextWithRemoteSpanContext(context.Background(), of), name, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attrs...))
	return &settleSpan{span}
}

// End ends the span.
func (s *settleSpan) End(err error) {
	if s == nil {
		return
	}
	if err != nil {
		refuse(s.span, err)
	}
	s.span.End()
}

// Holdings remember the traces of the tasks that a worker's stream holds, so that their ends appear there. Without a tracer they
// stay empty.
type Holdings struct {
	mu sync.Mutex
	of map[task.ID]holding
}

type holding struct {
	trace      trace.SpanContext
	queue, typ string
	attempt    int
}

// Held is Claims for a stream.
func (g Spans) Held(h *Holdings, claimed []broker.Claimed) {
	if g.Tracer == nil {
		return
	}
	g.Claims(claimed)
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range claimed {
		c := &claimed[i]
		if of := traceOf(c.Headers); of.IsValid() {
			if h.of == nil {
				h.of = map[task.ID]holding{}
			}
			h.of[c.ID] = holding{of, c.Queue, c.Type, c.Exec.Attempt()}
		}
	}
}

// Take removes and returns the trace of a task that the stream no longer holds.
func (h *Holdings) Take(id task.ID) (holding, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	got, ok := h.of[id]
	delete(h.of, id)
	return got, ok
}

var settleWords = map[broker.Verb]string{broker.Ack: "ack", broker.Fail: "fail", broker.Release: "release"}

// Settled creates the span of a claim that a stream ended, now that it is answered; refused is nil if it was accepted.
func (g Spans) Settled(held *Holdings, verb broker.Verb, id task.ID, began time.Time, refused *pawlv1.Error) {
	word, ends := settleWords[verb]
	if g.Tracer == nil || !ends {
		return
	}
	h, ok := held.Take(id)
	if !ok {
		return
	}
	_, span := g.Tracer.Start(trace.ContextWithRemoteSpanContext(context.Background(), h.trace), word+" "+h.queue,
		trace.WithTimestamp(began), trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(broker.SpanAttrs(word, h.queue, h.typ)...))
	if span.IsRecording() {
		span.SetAttributes(semconv.MessagingMessageID(id.String()), attrTaskAttempt.Int(h.attempt), attrShard.Int64(int64(id.Shard())))
		if refused != nil {
			refuse(span, &task.Error{Code: task.Code(refused.GetCode()), Message: refused.GetMessage()})
		}
	}
	span.End()
}

package telemetry

import (
	"context"
	"maps"

	"github.com/pawlq/pawl/internal/client/convert"
	"go.opentelemetry.io/otel/propagation"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// A task that is sent alone, or gathered with others that happen to be sent at the same time, has a span "send". Tasks of a batch have a
// span "create" each, and the batch a "send" that links to them. A task's headers carry the span that is about this task alone: its
// creation context, in the terms of the conventions.

// The broker's limits on headers and their bytes: a task must not be refused because of its trace.
const (
	maxHeaders     = 64
	maxHeaderBytes = 16 << 10
)

// Send starts the span of one task and injects it into the task's headers.
func (t *Telemetry) Send(ctx context.Context, s *pawlv1.TaskSpec) (context.Context, Span) {
	var more []trace.SpanStartOption
	if given := t.headerTrace(s.Headers); given.IsValid() {
		more = append(more, linkTo(given))
	}
	ctx, o := t.begin(ctx, VerbSend, convert.QueueName(s), more...)
	t.Inject(ctx, s)
	describeTask(o.span, s)
	return ctx, o
}

// Sent ends the span of one task.
func (o Span) Sent(answer *pawlv1.Enqueued, err error) {
	nameTask(o.span, answer)
	o.End(err)
	if !o.began.IsZero() {
		o.t.sent.AddSet(context.Background(), 1, o.labels(err))
	}
}

func describeTask(span trace.Span, s *pawlv1.TaskSpec) {
	if span.IsRecording() {
		span.SetAttributes(attrTaskType.String(s.GetType()), semconv.MessagingMessageBodySize(len(s.GetPayload())))
	}
}

func nameTask(span trace.Span, answer *pawlv1.Enqueued) {
	if answer != nil && span.IsRecording() {
		span.SetAttributes(semconv.MessagingMessageID(answer.GetTaskId()))
	}
}

// Inject injects the trace of ctx into a task's headers. A trace that its producer set is kept, even if it can't be parsed.
func (t *Telemetry) Inject(ctx context.Context, s *pawlv1.TaskSpec) {
	if t.w3c && !trace.SpanContextFromContext(ctx).IsValid() {
		return
	}
	for _, name := range t.fields {
		if _, given := s.Headers[name]; given {
			return
		}
	}
	carrier := propagation.MapCarrier{}
	t.carry.Inject(ctx, carrier)
	switch {
	case len(carrier) == 0:
	case s.Headers == nil:
		s.Headers = carrier
	case len(s.Headers)+len(carrier) <= maxHeaders && headerBytes(s.Headers)+headerBytes(carrier) <= maxHeaderBytes:
		maps.Copy(s.Headers, carrier)
	}
}

func headerBytes(headers map[string]string) (n int) {
	for name, value := range headers {
		n += len(name) + len(value)
	}
	return n
}

// Batch has the spans of a batch in flight.
type Batch struct {
	Span
	tasks []trace.Span // nil: not recorded
}

// SendMany starts the spans of a batch of n tasks and injects each into the headers of its task.
func (t *Telemetry) SendMany(ctx context.Context, n int, spec func(i int) *pawlv1.TaskSpec) (context.Context, Batch) {
	queue := ""
	for i := range n {
		switch q := convert.QueueName(spec(i)); {
		case i == 0:
			queue = q
		case q != queue:
			queue = ""
		}
	}
	var s Batch
	outer := ctx
	ctx, s.Span = t.begin(ctx, VerbSendBatch, queue, trace.WithAttributes(semconv.MessagingBatchMessageCount(n)))
	recording := s.span.IsRecording()
	if !recording && t.w3c && !s.span.SpanContext().IsValid() {
		return ctx, s
	}
	if recording {
		s.tasks = make([]trace.Span, n)
	}
	for i := range n {
		if !recording {
			t.Inject(ctx, spec(i))
			continue
		}
		one, o := t.begin(outer, VerbCreate, convert.QueueName(spec(i)))
		s.tasks[i] = o.span
		describeTask(o.span, spec(i))
		t.Inject(one, spec(i))
		if i < maxLinks {
			s.span.AddLink(trace.Link{SpanContext: o.span.SpanContext()})
		}
	}
	return ctx, s
}

// Answered ends the span of one task.
func (s Batch) Answered(i int, answer *pawlv1.Enqueued, err error) {
	if s.tasks == nil {
		return
	}
	nameTask(s.tasks[i], answer)
	Span{span: s.tasks[i]}.endSpan(err)
}

// DoneWith is Done for a batch that was answered, or failed, as a whole.
func (s Batch) DoneWith(results []*pawlv1.EnqueueResult, n int, err error) {
	for i := range s.tasks {
		if i < len(results) {
			var refused error
			if e := results[i].GetError(); e != nil {
				refused = convert.Error(e)
			}
			s.Answered(i, results[i].GetTask(), refused)
		} else {
			s.Answered(i, nil, err)
		}
	}
	s.Done(n, err)
}

// Done ends the span of a batch of n tasks. err is why some of them got no response.
func (s Batch) Done(n int, err error) {
	s.End(err)
	if !s.began.IsZero() {
		s.t.sent.AddSet(context.Background(), int64(n), s.labels(err))
	}
}

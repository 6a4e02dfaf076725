package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/pawltype"
)

// rig is a Telemetry whose spans and metrics can be read.
type rig struct {
	*testing.T
	*Telemetry
	spans  *tracetest.SpanRecorder
	reader *sdkmetric.ManualReader
	outer  context.Context // within a trace of the test
}

func newRig(t *testing.T, cfg Config) *rig {
	r := &rig{T: t, spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
	limits := sdktrace.NewSpanLimits()
	limits.LinkCountLimit = -1
	cfg.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans), sdktrace.WithRawSpanLimits(limits))
	cfg.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader))
	r.Telemetry = newTestTelemetry(t, cfg)
	r.outer = trace.ContextWithRemoteSpanContext(t.Context(), origin(9))
	return r
}

// origin returns a remote span context.
func origin(n byte) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{n}, SpanID: trace.SpanID{n}, TraceFlags: trace.FlagsSampled,
		Remote: true})
}

func headersOf(s trace.SpanContext) map[string]string {
	said := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), s), said)
	return said
}

// attributes returns those that differ between spans of a verb.
func attributes(list []attribute.KeyValue) string {
	var said []string
	for _, a := range list {
		name := strings.TrimPrefix(strings.TrimPrefix(string(a.Key), "messaging."), "pawl.")
		if name != "system" && !strings.HasPrefix(name, "operation.") {
			said = append(said, name+"="+a.Value.String())
		}
	}
	slices.Sort(said)
	return strings.Join(said, " ")
}

// recorded returns a line for each ended span, and for each recorded metric.
func (r *rig) recorded() string {
	var b strings.Builder
	for _, s := range r.spans.Ended() {
		fmt.Fprintf(&b, "%s [%s] %s %s", s.Name(), attributes(s.Attributes()), s.Status().Code, s.Status().Description)
		if s.Parent().IsValid() {
			fmt.Fprintf(&b, " in %s", s.Parent().TraceID().String()[:2])
		}
		for _, l := range s.Links() {
			fmt.Fprintf(&b, " link %s", l.SpanContext.TraceID().String()[:2])
		}
		for _, e := range s.Events() {
			fmt.Fprintf(&b, " event %s [%s]", e.Name, attributes(e.Attributes))
		}
		b.WriteByte('\n')
	}
	var all metricdata.ResourceMetrics
	if err := r.reader.Collect(r.Context(), &all); err != nil {
		r.Fatal(err)
	}
	var figures []string
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					figures = append(figures, fmt.Sprintf("%s [%s] %d\n", m.Name, attributes(p.Attributes.ToSlice()), p.Value))
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					figures = append(figures, fmt.Sprintf("%s [%s] %d, %.0f s\n", m.Name, attributes(p.Attributes.ToSlice()), p.Count,
						p.Sum))
					if want := []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}; !slices.Equal(p.Bounds,
						want) {
						r.Errorf("%s has the buckets %v, want %v", m.Name, p.Bounds, want)
					}
				}
			}
		}
	}
	slices.Sort(figures)
	return b.String() + strings.Join(figures, "")
}

// The spans and metrics of each operation.
func TestOperations(t *testing.T) {
	refused := &pawltype.Error{Code: pawltype.ErrQueueFull, Message: strings.Repeat("x", 2000)}
	status := refused.Error()[:maxStatusText]
	spec := func(queue string) *pawlv1.TaskSpec {
		return &pawlv1.TaskSpec{Type: "a", Queue: new(queue), Payload: []byte("123")}
	}
	task := Task{ID: "1", Type: "a", Queue: "mail", Attempt: 2, Size: 3}
	ago := time.Now().Add(-time.Hour)
	for what, x := range map[string]struct {
		linked bool
		do     func(r *rig)
		want   string
	}{
		"a task": {false, func(r *rig) {
			s := spec("mail")
			_, o := r.Send(r.outer, s)
			o.Sent(&pawlv1.Enqueued{TaskId: "1"}, nil)
			if got := r.headerTrace(s.Headers); got.SpanID() != o.SpanContext().SpanID() {
				r.Errorf("the task carries span %v, but was sent by %v", got, o.SpanContext())
			}
		}, `send mail [destination.name=mail message.body.size=3 message.id=1 task.type=a] Unset  in 09
messaging.client.operation.duration [destination.name=mail] 1, 0 s
messaging.client.sent.messages [destination.name=mail] 1
`},
		"a task of a trace that is refused": {false, func(r *rig) {
			s := spec("")
			s.Headers = headersOf(origin(7))
			_, o := r.Send(r.Context(), s)
			o.Sent(nil, refused)
			if s.Headers["traceparent"] != headersOf(origin(7))["traceparent"] {
				r.Errorf("the trace context given by the producer was replaced: %v", s.Headers)
			}
		}, `send default [destination.name=default error.type=queue_full message.body.size=3 task.type=a] Error ` + status + ` link 07
messaging.client.operation.duration [destination.name=default error.type=queue_full] 1, 0 s
messaging.client.sent.messages [destination.name=default error.type=queue_full] 1
`},
		"a batch": {false, func(r *rig) {
			specs := []*pawlv1.TaskSpec{spec("mail"), spec("mail"), spec("mail"), spec("mail")}
			_, b := r.SendMany(r.outer, 4, func(i int) *pawlv1.TaskSpec { return specs[i] })
			answers := []*pawlv1.EnqueueResult{{Task: &pawlv1.Enqueued{TaskId: "1"}}, {Error: &pawlv1.Error{Code: "conflict"}}}
			b.DoneWith(answers, 4, context.Canceled)
			for i, s := range specs {
				if got := r.headerTrace(s.Headers); got.SpanID() != r.spans.Ended()[i].SpanContext().SpanID() {
					r.Errorf("task %d carries span %s, but was created by %s", i, got.SpanID(), r.spans.Ended()[i].SpanContext().SpanID())
				}
			}
		}, `create mail [destination.name=mail message.body.size=3 message.id=1 task.type=a] Unset  in 09
create mail [destination.name=mail error.type=conflict message.body.size=3 task.type=a] Error pawl: conflict in 09
create mail [destination.name=mail error.type=cancelled message.body.size=3 task.type=a] Error context canceled in 09
create mail [destination.name=mail error.type=cancelled message.body.size=3 task.type=a] Error context canceled in 09
send mail [batch.message_count=4 destination.name=mail error.type=cancelled] Error context canceled in 09 link 09 link 09 link 09 link 09
messaging.client.operation.duration [destination.name=mail error.type=cancelled] 1, 0 s
messaging.client.sent.messages [destination.name=mail error.type=cancelled] 4
`},
		"a batch for two queues": {false, func(r *rig) {
			_, b := r.SendMany(r.outer, 2, func(i int) *pawlv1.TaskSpec { return spec([]string{"mail", "b"}[i]) })
			b.DoneWith([]*pawlv1.EnqueueResult{{}, {}}, 2, nil)
		}, `create mail [destination.name=mail message.body.size=3 task.type=a] Unset  in 09
create b [destination.name=b message.body.size=3 task.type=a] Unset  in 09
send [batch.message_count=2] Unset  in 09 link 09 link 09
messaging.client.operation.duration [] 1, 0 s
messaging.client.sent.messages [] 2
`},
		"a run": {false, func(r *rig) {
			_, o := r.Process(r.outer, task, "w")
			if !o.Recording() {
				r.Error("the run does not record")
			}
			o.began = o.began.Add(-time.Minute)
			o.Processed(pawltype.OutcomeSucceeded, nil)
		}, `process mail [client.id=w destination.name=mail message.body.size=3 message.id=1 task.attempt=2 task.outcome=succeeded task.type=a] Unset  in 09
messaging.client.consumed.messages [destination.name=mail] 1
messaging.process.duration [destination.name=mail] 1, 60 s
`},
		"a run that fails": {false, func(r *rig) {
			_, o := r.Process(r.outer, task, "w")
			o.Processed(pawltype.OutcomeFailed, &pawltype.PanicError{Value: "oh", Stack: []byte("s")})
		}, `process mail [client.id=w destination.name=mail error.type=panic message.body.size=3 message.id=1 task.attempt=2 task.outcome=failed task.type=a] Error panic: oh in 09 event exception [exception.message=panic: oh exception.stacktrace=s exception.type=panic]
messaging.client.consumed.messages [destination.name=mail] 1
messaging.process.duration [destination.name=mail error.type=panic] 1, 0 s
`},
		"a run with an error": {false, func(r *rig) {
			_, o := r.Process(r.outer, task, "w")
			o.Processed(pawltype.OutcomeDead, errors.New("boom"))
		}, `process mail [client.id=w destination.name=mail error.type=*errors.errorString message.body.size=3 message.id=1 task.attempt=2 task.outcome=dead task.type=a] Error boom in 09 event exception [exception.message=boom exception.type=*errors.errorString]
messaging.client.consumed.messages [destination.name=mail] 1
messaging.process.duration [destination.name=mail error.type=*errors.errorString] 1, 0 s
`},
		"a run that is put off": {false, func(r *rig) {
			_, o := r.Process(r.outer, task, "w")
			o.Processed(pawltype.OutcomeSnoozed, errors.New("later"))
		}, `process mail [client.id=w destination.name=mail message.body.size=3 message.id=1 task.attempt=2 task.outcome=snoozed task.type=a] Unset  in 09
messaging.client.consumed.messages [destination.name=mail] 1
messaging.process.duration [destination.name=mail] 1, 0 s
`},
		"a run of its own trace": {true, func(r *rig) {
			_, o := r.Process(r.outer, task, "w")
			o.Processed(pawltype.OutcomeSucceeded, nil)
			_, o = r.Process(r.Context(), Task{}, "w")
			o.Processed(pawltype.OutcomeSucceeded, nil)
		}, `process mail [client.id=w destination.name=mail message.body.size=3 message.id=1 task.attempt=2 task.outcome=succeeded task.type=a] Unset  link 09
process [client.id=w message.body.size=0 message.id= task.attempt=0 task.outcome=succeeded task.type=] Unset 
messaging.client.consumed.messages [] 1
messaging.client.consumed.messages [destination.name=mail] 1
messaging.process.duration [] 1, 0 s
messaging.process.duration [destination.name=mail] 1, 0 s
`},
		"endings": {false, func(r *rig) {
			r.Settled(origin(5), task, VerbAck, ago, nil)
			ctx, o := r.Settle(r.outer, task, VerbFail)
			o.End(refused)
			md, _ := metadata.FromOutgoingContext(ctx)
			if want := headersOf(r.spans.Ended()[1].SpanContext())["traceparent"]; !slices.Equal(md["traceparent"], []string{want}) {
				r.Errorf("the call to the broker has the metadata %v, want traceparent %s", md, want)
			}
			if ended := r.spans.Ended()[0]; !ended.StartTime().Equal(ago) {
				r.Errorf("the span of the ending began at %s, want %s", ended.StartTime(), ago)
			}
			_, o = r.SettleMany(r.outer, 7)
			o.End(nil)
		}, `ack mail [destination.name=mail message.id=1 task.attempt=2 task.type=a] Unset  in 05
fail mail [destination.name=mail error.type=queue_full message.id=1 task.attempt=2 task.type=a] Error ` + status + ` in 09
settle [batch.message_count=7] Unset  in 09
messaging.client.operation.duration [] 1, 0 s
messaging.client.operation.duration [destination.name=mail error.type=queue_full] 1, 0 s
messaging.client.operation.duration [destination.name=mail] 1, 3600 s
`},
		"claims": {false, func(r *rig) {
			mail, two := []*pawlv1.QueueShare{{Queue: "mail"}}, []*pawlv1.QueueShare{{Queue: "mail"}, {Queue: "b"}}
			r.Claimed(r.outer, mail, ago, nil, nil)
			r.Claimed(r.outer, mail, ago, []*pawlv1.ClaimedTask{{Headers: headersOf(origin(3))}, {Headers: map[string]string{"a": "b"}},
				{}}, nil)
			r.Claimed(r.outer, two, ago, []*pawlv1.ClaimedTask{{}}, nil)
			r.Claimed(r.outer, mail, ago, nil, refused)
		}, `claim mail [batch.message_count=3 destination.name=mail] Unset  in 09 link 03
claim [batch.message_count=1] Unset  in 09
claim mail [batch.message_count=0 destination.name=mail error.type=queue_full] Error ` + status + ` in 09
messaging.client.consumed.messages [] 1
messaging.client.consumed.messages [destination.name=mail error.type=queue_full] 0
messaging.client.consumed.messages [destination.name=mail] 3
messaging.client.operation.duration [] 1, 3600 s
messaging.client.operation.duration [destination.name=mail error.type=queue_full] 1, 3600 s
messaging.client.operation.duration [destination.name=mail] 1, 3600 s
`},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t, Config{LinkedTraces: x.linked})
			x.do(r)
			if got := r.recorded(); got != x.want {
				t.Errorf("got\n%s, want\n%s", got, x.want)
			}
		})
	}
}

// Spans have a limit on links, and the broker has one on headers.
func TestBounds(t *testing.T) {
	r := newRig(t, Config{})
	many := make([]*pawlv1.ClaimedTask, maxLinks+1)
	for i := range many {
		many[i] = &pawlv1.ClaimedTask{Headers: headersOf(origin(1))}
	}
	r.Claimed(r.outer, nil, time.Now(), many, nil)
	_, b := r.SendMany(r.outer, maxLinks+2, func(int) *pawlv1.TaskSpec { return &pawlv1.TaskSpec{} })
	b.Done(maxLinks+2, nil)
	for _, s := range r.spans.Ended() {
		if len(s.Links()) != 128 {
			t.Errorf("%s has %d links, want 128", s.Name(), len(s.Links()))
		}
	}
	added := len("traceparent") + len(headersOf(origin(1))["traceparent"])
	for _, x := range []struct {
		headers, bytes int
		told           bool
	}{{1, 1, true}, {63, 1, true}, {64, 1, false}, {65, 1, false}, {1, 16<<10 - added, true}, {1, 16<<10 - added + 1, false},
		{1, 16 << 10, false}} {
		s := &pawlv1.TaskSpec{Headers: map[string]string{}}
		for i := range x.headers {
			s.Headers[fmt.Sprintf("%c", 'A'+i)] = ""
		}
		s.Headers["A"] = strings.Repeat("x", x.bytes-1)
		r.Inject(r.outer, s)
		if got := r.headerTrace(s.Headers).IsValid(); got != x.told {
			t.Errorf("%d headers, %d bytes: trace context injected = %v", x.headers, x.bytes, got)
		}
	}
	first := r.operation(VerbSend, "0")
	for i := range maxKnown + 10 {
		r.operation(VerbSend, fmt.Sprint(i))
	}
	r.knownCount.Add(1) // as concurrent calls might
	r.operation(VerbSend, "one more")
	known := 0
	for range r.known.Range {
		known++
	}
	last := r.operation(VerbSend, fmt.Sprint(maxKnown+9))
	if known != 10_000 || r.operation(VerbSend, "0") != first || r.operation(VerbSend, fmt.Sprint(maxKnown+9)) == last {
		t.Errorf("%d operations are cached, want 10000", known)
	}
}

// Metrics need no spans, and spans no metrics; a trace that is not recorded is propagated.
func TestMetricsWithoutSpans(t *testing.T) {
	r := newRig(t, Config{})
	figures := newTestTelemetry(t, Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))})
	ctx, o := figures.Process(t.Context(), Task{}, "w")
	if ctx != t.Context() || o.span != noSpan || o.began.IsZero() || !o.Recording() {
		t.Errorf("a run with metrics only: %+v", o)
	}
	spec := &pawlv1.TaskSpec{}
	if _, b := figures.SendMany(t.Context(), 1, func(int) *pawlv1.TaskSpec { return spec }); b.tasks != nil || spec.Headers != nil {
		t.Errorf("a batch with metrics only: %+v, headers %v", b, spec.Headers)
	}
	spans := newTestTelemetry(t, Config{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans))})
	if _, o := spans.Process(t.Context(), Task{}, "w"); !o.began.IsZero() || !o.Recording() {
		t.Errorf("a run with traces only: %+v", o)
	} else {
		o.Processed(pawltype.OutcomeSucceeded, nil)
		spans.Settled(o.SpanContext(), Task{}, VerbAck, time.Now(), nil)
		spans.Claimed(t.Context(), nil, time.Now(), []*pawlv1.ClaimedTask{{}}, nil)
		_, o := spans.Send(t.Context(), spec)
		o.Sent(nil, nil)
		_, b := spans.SendMany(t.Context(), 1, func(int) *pawlv1.TaskSpec { return spec })
		b.DoneWith(nil, 1, nil)
	}
	none := newTestTelemetry(t, Config{})
	spec = &pawlv1.TaskSpec{}
	_, b := none.SendMany(r.outer, 1, func(int) *pawlv1.TaskSpec { return spec })
	b.Answered(0, nil, nil)
	b.DoneWith(nil, 1, nil)
	if got := none.headerTrace(spec.Headers); got.TraceID() != origin(9).TraceID() {
		t.Errorf("a batch without spans carries %v, want the caller's trace", got)
	}
	if got := none.injectCall(t.Context()); got != t.Context() {
		t.Error("a call without a trace got a new context")
	}
}

// own is a propagator that always injects something.
type own struct{ propagation.TraceContext }

func (own) Inject(_ context.Context, c propagation.TextMapCarrier) { c.Set("x-own", "1") }
func (own) Fields() []string                                       { return []string{"x-own"} }

// silent is a propagator that never injects anything.
type silent struct{ own }

func (silent) Inject(context.Context, propagation.TextMapCarrier) {}

// A program's own propagator is used for every task.
func TestPropagators(t *testing.T) {
	for _, x := range []struct {
		p    propagation.TextMapPropagator
		ctx  context.Context
		want map[string]string
	}{
		{nil, t.Context(), nil},
		{nil, trace.ContextWithSpanContext(t.Context(), origin(1)), headersOf(origin(1))},
		{own{}, t.Context(), map[string]string{"x-own": "1"}},
		{silent{}, t.Context(), nil},
	} {
		tel := newTestTelemetry(t, Config{Propagator: x.p})
		one, many := &pawlv1.TaskSpec{}, &pawlv1.TaskSpec{}
		tel.Inject(x.ctx, one)
		tel.SendMany(x.ctx, 1, func(int) *pawlv1.TaskSpec { return many })
		if !maps.Equal(one.Headers, x.want) || !maps.Equal(many.Headers, x.want) || x.want == nil && one.Headers != nil {
			t.Errorf("%T: Inject set %#v, SendMany set %v, want %v", x.p, one.Headers, many.Headers, x.want)
		}
		given := &pawlv1.TaskSpec{Headers: map[string]string{"x-own": "2", "traceparent": "3"}}
		tel.Inject(x.ctx, given)
		if len(given.Headers) != 2 || given.Headers["x-own"] != "2" || given.Headers["traceparent"] != "3" {
			t.Errorf("%T: the producer's own headers were changed to %v", x.p, given.Headers)
		}
	}
	tel := newTestTelemetry(t, Config{})
	with := tel.Extract(t.Context(), Task{Headers: headersOf(origin(4))})
	if got := trace.SpanContextFromContext(with).TraceID(); got != origin(4).TraceID() || tel.Extract(t.Context(), Task{}) != t.Context() {
		t.Errorf("Extract returned trace %s", got)
	}
	if trace.SpanContextFromContext(WithoutSpan(with)).IsValid() || WithoutSpan(t.Context()) != t.Context() {
		t.Error("WithoutSpan did not hide the program's span")
	}
	if tel.headerTrace(nil).IsValid() {
		t.Error("headerTrace(nil) returned a valid span context")
	}
}

// failing is a meter that can't create one of the instruments.
type failing struct {
	noopmetric.MeterProvider
	name string
}

type failingMeter struct {
	noopmetric.Meter
	name string
}

var errInstrument = errors.New("no instrument")

func (f failing) Meter(string, ...metric.MeterOption) metric.Meter {
	return failingMeter{name: f.name}
}

func (f failingMeter) Float64Histogram(name string, opts ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	if name == f.name {
		return noopmetric.Float64Histogram{}, errInstrument
	}
	return f.Meter.Float64Histogram(name, opts...)
}

func (f failingMeter) Int64Counter(name string, opts ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	if name == f.name {
		return noopmetric.Int64Counter{}, errInstrument
	}
	return f.Meter.Int64Counter(name, opts...)
}

// The error of an instrument is returned.
func TestFailingInstruments(t *testing.T) {
	for _, name := range []string{"messaging.client.operation.duration", "messaging.process.duration", "messaging.client.sent.messages",
		"messaging.client.consumed.messages"} {
		if _, err := New(Config{MeterProvider: failing{name: name}}); !errors.Is(err, errInstrument) {
			t.Errorf("New with a failing %s: got %v", name, err)
		}
	}
}

// long is an error whose type has a long name.
type long[T any] struct{ _ T }

func (long[T]) Error() string { return "long" }

// Error types are a small set of words.
func TestErrorTypes(t *testing.T) {
	for err, want := range map[error]string{
		&pawltype.Error{Code: pawltype.ErrConflict}: "conflict", &pawltype.PanicError{Value: 1}: "panic", pawltype.ErrClosed: "closed",
		context.Canceled: "cancelled", context.DeadlineExceeded: "timeout", fmt.Errorf("x: %w", context.Canceled): "cancelled",
		errors.New("x"): "*errors.errorString",
	} {
		if got := errorType(err); got != want {
			t.Errorf("%v: got %s, want %s", err, got, want)
		}
	}
	if got := errorType(long[long[long[long[long[long[long[int]]]]]]]{}); len(got) != 256 {
		t.Errorf("the error type has %d bytes, want 256", len(got))
	}
	if err := SettleError(&pawlv1.Settled{Error: &pawlv1.Error{Code: "conflict"}}); !errors.Is(err, pawltype.ErrConflict) ||
		SettleError(&pawlv1.Settled{}) != nil {
		t.Errorf("SettleError = %v, want a conflict", err)
	}
}

// A log line names the trace that it belongs to.
func TestLogTrace(t *testing.T) {
	var b strings.Builder
	log := slog.New(slog.NewTextHandler(&b, nil))
	LogTrace(log, origin(1)).Info("traced")
	if want := "trace_id=01000000000000000000000000000000 span_id=0100000000000000"; !strings.Contains(b.String(), want) ||
		LogTrace(log, trace.SpanContext{}) != log {
		t.Errorf("the log has %s, want %s", &b, want)
	}
}

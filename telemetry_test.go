package pawl

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// countingTracers counts the spans that are begun.
type countingTracers struct {
	noop.TracerProvider
	begun int
}

type countingTracer struct {
	noop.Tracer
	of *countingTracers
}

func (c *countingTracers) Tracer(string, ...trace.TracerOption) trace.Tracer {
	return countingTracer{of: c}
}

func (c countingTracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	c.of.begun++
	return c.Tracer.Start(ctx, name, opts...)
}

func newTestTelemetry(t testing.TB, cfg dialConfig) *telemetry {
	t.Helper()
	tel, err := newTelemetry(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tel
}

// Who has set no provider pays nothing, but traces that come along go along; and a provider that is set later is used.
func TestTelemetryThatNobodyWants(t *testing.T) {
	if noTracers == nil {
		t.Fatal("the global provider that was never set is not known")
	}
	tel := newTestTelemetry(t, dialConfig{})
	ctx, claim := t.Context(), &Claim{Queue: "mail"}
	if n := testing.AllocsPerRun(100, func() {
		if got, o := tel.process(ctx, claim, "w"); got != ctx || o.wanted() {
			t.Error("a run is traced that nobody traces")
		}
	}); n > 0 {
		t.Errorf("a run that nobody traces allocates %v times", n)
	}

	remote := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, Remote: true})
	with := trace.ContextWithRemoteSpanContext(ctx, remote)
	if got, o := tel.process(with, claim, "w"); o.span.SpanContext().TraceID() != remote.TraceID() || trace.SpanContextFromContext(got).TraceID() != remote.TraceID() {
		t.Errorf("the run has trace %v, its task %v", o.span.SpanContext(), remote)
	}

	later := &countingTracers{}
	otel.SetTracerProvider(later)
	defer otel.SetTracerProvider(noTracers)
	if _, o := tel.process(ctx, claim, "w"); later.begun != 1 {
		t.Errorf("a provider that was set later got %d spans, want 1", later.begun)
	} else {
		o.processed(OutcomeSucceeded, nil)
	}
}

// A provider of the client's own is always asked.
func TestTelemetryOfItsOwn(t *testing.T) {
	own := &countingTracers{}
	tel := newTestTelemetry(t, dialConfig{tracers: own})
	if _, o := tel.begin(t.Context(), verbClaim, "mail"); own.begun != 1 {
		t.Errorf("%d spans, want 1", own.begun)
	} else {
		o.end(nil)
	}
}

func BenchmarkUntraced(b *testing.B) {
	tel := newTestTelemetry(b, dialConfig{})
	ctx, claim := b.Context(), &Claim{Queue: "mail"}
	b.ReportAllocs()
	for b.Loop() {
		_, o := tel.process(ctx, claim, "w")
		o.processed(OutcomeSucceeded, nil)
	}
}

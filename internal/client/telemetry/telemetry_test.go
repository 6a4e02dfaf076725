package telemetry

import (
	"context"
	"strings"
	"testing"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/client/route"
	"github.com/pawlq/pawl/pawltype"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// later is the provider that tests set globally: the global one delegates to the first that is set, permanently.
var later = &countingTracers{}

// countingTracers counts the spans that are started.
type countingTracers struct {
	noop.TracerProvider
	begun, links int
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
	cfg := trace.NewSpanStartConfig(opts...)
	c.of.links += len(cfg.Links())
	return c.Tracer.Start(ctx, name, opts...)
}

func newTestTelemetry(t testing.TB, cfg Config) *Telemetry {
	t.Helper()
	tel, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tel
}

// A program without a provider pays nothing, but incoming traces are propagated; and a provider that is set later is used.
func TestNoProvider(t *testing.T) {
	if noTracers == nil {
		t.Fatal("the unset global provider was not recognized")
	}
	for _, p := range []trace.TracerProvider{noop.TracerProvider{}, later} {
		if ifUnset(p) != nil {
			t.Errorf("%T was treated as an unset provider", p)
		}
	}
	tel := newTestTelemetry(t, Config{})
	ctx, claim := t.Context(), Task{Queue: "mail"}
	if n := testing.AllocsPerRun(100, func() {
		if got, o := tel.Process(ctx, claim, "w"); got != ctx || o.Recording() {
			t.Error("a run was traced without a provider")
		}
	}); n > 0 {
		t.Errorf("a run without a provider allocates %v times", n)
	}
	spec := &pawlv1.TaskSpec{}
	_, run := tel.Process(ctx, claim, "w")
	run.Processed(pawltype.OutcomeFailed, context.Canceled)
	_, one := tel.Send(ctx, spec)
	one.Sent(&pawlv1.Enqueued{}, nil)
	_, many := tel.SendMany(ctx, 1, func(int) *pawlv1.TaskSpec { return spec })
	many.DoneWith(nil, 1, nil)
	tel.Settled(run.SpanContext(), claim, VerbAck, time.Now(), nil)
	tel.Claimed(ctx, nil, time.Now(), []*pawlv1.ClaimedTask{{}}, nil)
	if spec.Headers != nil {
		t.Errorf("a task sent without a provider has the headers %v", spec.Headers)
	}

	remote := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, Remote: true})
	with := trace.ContextWithRemoteSpanContext(ctx, remote)
	if got, o := tel.Process(with, claim, "w"); o.span.SpanContext().TraceID() != remote.TraceID() ||
		trace.SpanContextFromContext(got).TraceID() != remote.TraceID() {
		t.Errorf("the run has trace %v, its task has %v", o.span.SpanContext(), remote)
	}

	before := later.begun
	otel.SetTracerProvider(later)
	defer otel.SetTracerProvider(noTracers)
	if _, o := tel.Process(ctx, claim, "w"); later.begun != before+1 {
		t.Errorf("a provider that was set later got %d spans, want 1", later.begun-before)
	} else {
		o.Processed(pawltype.OutcomeSucceeded, nil)
	}
}

// Spans and metrics name the server by the address given to the client.
func TestServerAttrs(t *testing.T) {
	for addr, want := range map[string]string{
		"localhost": "server.address=localhost server.port=7295", "localhost:80": "server.address=localhost server.port=80",
		"https://mail.example:443": "server.address=mail.example server.port=443", "[::1]:80": "server.address=::1 server.port=80",
		"[::1]": "server.address=::1 server.port=7295", "mail.example:https": "server.address=mail.example",
		"unix:///run/pawl.sock": "server.address=/run/pawl.sock", "unix:pawl.sock": "server.address=pawl.sock", "n1:7295,n2:7295": "",
		"": "",
	} {
		var words []string
		for _, a := range Server(route.Address(addr)) {
			words = append(words, string(a.Key)+"="+a.Value.String())
		}
		if got := strings.Join(words, " "); got != want {
			t.Errorf("%q: got %q, want %q", addr, got, want)
		}
	}
	tel, err := New(Config{}, Server("localhost", "7295")...)
	if err != nil {
		t.Fatal(err)
	}
	for v := range verbs {
		op := tel.operation(Verb(v), "mail")
		spans := trace.NewSpanStartConfig(op.start...)
		if got := attribute.NewSet(spans.Attributes()...); got.Equivalent() != op.labels.Equivalent() || !got.HasValue("server.address") ||
			!got.HasValue("server.port") {
			t.Errorf("%s has the attributes %v, but its metrics have %v", op.name, got.ToSlice(), op.labels.ToSlice())
		}
	}
}

// A client's own provider is always used.
func TestOwnProvider(t *testing.T) {
	own := &countingTracers{}
	tel := newTestTelemetry(t, Config{TracerProvider: own})
	if _, o := tel.begin(t.Context(), VerbClaim, "mail"); own.begun != 1 {
		t.Errorf("began %d spans, want 1", own.begun)
	} else {
		o.End(nil)
	}
	tel.linked = true
	tel.Process(t.Context(), Task{}, "w")
	tel.Send(t.Context(), &pawlv1.TaskSpec{})
	if own.begun != 3 || own.links != 0 {
		t.Errorf("began %d spans with %d links, want 3 without links", own.begun, own.links)
	}
}

func BenchmarkUntraced(b *testing.B) {
	tel := newTestTelemetry(b, Config{})
	ctx, claim := b.Context(), Task{Queue: "mail"}
	b.ReportAllocs()
	for b.Loop() {
		_, o := tel.Process(ctx, claim, "w")
		o.Processed(pawltype.OutcomeSucceeded, nil)
	}
}

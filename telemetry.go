package pawl

import (
	"context"
	"errors"
	"net"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"
	"go.opentelemetry.io/otel/trace"
)

// WithTracerProvider sets where spans go; see docs/tracing.md for which there are. Without it, or with nil, they go to the global provider of
// OpenTelemetry, and nowhere as long as the program has set none.
func WithTracerProvider(p trace.TracerProvider) DialOption {
	return func(c *dialConfig) { c.tracers = p }
}

// WithMeterProvider sets where metrics go: those that OpenTelemetry's messaging conventions name for clients. Without it they go to
// the global provider, and nowhere as long as the program has set none.
func WithMeterProvider(p metric.MeterProvider) DialOption {
	return func(c *dialConfig) { c.meters = p }
}

// WithPropagator sets how trace context is written into the headers of tasks and read from them. Without it that is W3C trace context
// (traceparent, tracestate), whatever the program's global propagator is: baggage leaves the process only if you say so here.
func WithPropagator(p propagation.TextMapPropagator) DialOption {
	return func(c *dialConfig) { c.propagator = p }
}

// WithLinkedTraces makes each run of a task a trace of its own, with a link to the one in which the task was enqueued. Without it a run
// is part of that trace, which is easier to read; but one that lasts for days is more than some backends like.
func WithLinkedTraces() DialOption { return func(c *dialConfig) { c.linked = true } }

// scope names the SDK as what makes the spans and metrics.
const scope = "github.com/pawlq/pawl"

// Attributes for which the conventions have no name.
const (
	attrTaskType    = attribute.Key("pawl.task.type")
	attrTaskAttempt = attribute.Key("pawl.task.attempt")
	attrTaskOutcome = attribute.Key("pawl.task.outcome")
)

// verb is an operation of the messaging conventions.
type verb uint8

const (
	verbSend      verb = iota
	verbCreate         // one task of a batch
	verbSendBatch      // beside verbCreate of each task
	verbClaim
	verbProcess
	verbAck
	verbFail
	verbRelease
	verbSettle // many endings by one call
)

// verbs are the words of each verb. Read only.
var verbs = [...]struct {
	name string
	kind trace.SpanKind
	typ  attribute.KeyValue
}{
	verbSend:      {"send", trace.SpanKindProducer, semconv.MessagingOperationTypeSend},
	verbCreate:    {"create", trace.SpanKindProducer, semconv.MessagingOperationTypeCreate},
	verbSendBatch: {"send", trace.SpanKindClient, semconv.MessagingOperationTypeSend},
	verbClaim:     {"claim", trace.SpanKindClient, semconv.MessagingOperationTypeReceive},
	verbProcess:   {"process", trace.SpanKindConsumer, semconv.MessagingOperationTypeProcess},
	verbAck:       {"ack", trace.SpanKindClient, semconv.MessagingOperationTypeSettle},
	verbFail:      {"fail", trace.SpanKindClient, semconv.MessagingOperationTypeSettle},
	verbRelease:   {"release", trace.SpanKindClient, semconv.MessagingOperationTypeSettle},
	verbSettle:    {"settle", trace.SpanKindClient, semconv.MessagingOperationTypeSettle},
}

// telemetry makes a client's spans and metrics, and takes trace context along in tasks. While no provider is set, and no trace goes along, it
// costs a call some nanoseconds. Its methods may be called by any number of goroutines.
type telemetry struct {
	tracer trace.Tracer
	global bool // tracer is that of the global provider
	carry  propagation.TextMapPropagator
	fields []string // that carry writes
	w3c    bool     // carry has nothing to say without a span
	linked bool
	server []attribute.KeyValue // of all spans and metrics

	operations messagingconv.ClientOperationDuration
	runs       messagingconv.ProcessDuration
	sent       messagingconv.ClientSentMessages
	consumed   messagingconv.ClientConsumedMessages

	known      sync.Map // operation by operationOn: what all spans of a kind share is made once
	knownCount atomic.Int64
}

// operationOn is a verb on a queue, "" if it is on several.
type operationOn struct {
	verb  verb
	queue string
}

// operation is what all spans of a verb on a queue have in common. Samplers see it.
type operation struct {
	name   string
	start  []trace.SpanStartOption
	labels attribute.Set // of metrics
}

// maxKnown bounds the operations that are remembered; beyond it they are made each time.
const maxKnown = 10_000

// newTelemetry makes the telemetry of a client of a server that attributes describe.
func newTelemetry(cfg *dialConfig, server ...attribute.KeyValue) (*telemetry, error) {
	t := &telemetry{carry: cfg.propagator, linked: cfg.linked, server: server}
	if t.carry == nil {
		t.carry, t.w3c = propagation.TraceContext{}, true
	}
	t.fields = t.carry.Fields()
	tracers, meters := cfg.tracers, cfg.meters
	if tracers == nil {
		tracers, t.global = otel.GetTracerProvider(), true
	}
	if meters == nil {
		meters = otel.GetMeterProvider()
	}
	t.tracer = tracers.Tracer(scope, trace.WithInstrumentationVersion(Version), trace.WithSchemaURL(semconv.SchemaURL))
	meter := meters.Meter(scope, metric.WithInstrumentationVersion(Version), metric.WithSchemaURL(semconv.SchemaURL))
	buckets := metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
	var errs [4]error
	t.operations, errs[0] = messagingconv.NewClientOperationDuration(meter, buckets)
	t.runs, errs[1] = messagingconv.NewProcessDuration(meter, buckets)
	t.sent, errs[2] = messagingconv.NewClientSentMessages(meter)
	t.consumed, errs[3] = messagingconv.NewClientConsumedMessages(meter)
	return t, errors.Join(errs[:]...)
}

// serverAttrs describe the address that a client was given, as far as it is one: of several nobody knows beforehand which will answer.
func serverAttrs(addr string) []attribute.KeyValue {
	addr = strings.TrimPrefix(strings.TrimSpace(addr), https)
	if addr == "" || strings.Contains(addr, ",") {
		return nil
	}
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return []attribute.KeyValue{semconv.ServerAddress(strings.TrimPrefix(path, "//"))}
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		host, port = strings.Trim(addr, "[]"), defaultPort
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil { // the name of a service: Dial looks it up
		return []attribute.KeyValue{semconv.ServerAddress(host)}
	}
	return []attribute.KeyValue{semconv.ServerAddress(host), semconv.ServerPort(int(n))}
}

func (t *telemetry) operation(v verb, queue string) *operation {
	key := operationOn{v, queue}
	if op, ok := t.known.Load(key); ok {
		return op.(*operation)
	}
	word := verbs[v]
	labels := []attribute.KeyValue{semconv.MessagingSystemKey.String("pawl"), semconv.MessagingOperationName(word.name), word.typ}
	op := &operation{name: word.name}
	if queue != "" {
		op.name += " " + queue
		labels = append(labels, semconv.MessagingDestinationName(queue))
	}
	labels = append(labels, t.server...)
	op.start = []trace.SpanStartOption{trace.WithSpanKind(word.kind), trace.WithAttributes(labels...)}
	op.labels = attribute.NewSet(labels...)
	if t.knownCount.Load() < maxKnown {
		if _, there := t.known.LoadOrStore(key, op); !there {
			t.knownCount.Add(1)
		}
	}
	return op
}

// noTracers is the global provider of a program that has set none; nil: it had set one before this package came to be. A span of it, which
// records nothing, takes a microsecond to make.
var noTracers = func() trace.TracerProvider {
	p := otel.GetTracerProvider()
	if t := reflect.TypeOf(p); t.Kind() == reflect.Pointer && strings.HasSuffix(t.Elem().PkgPath(), "/otel/internal/global") {
		return p
	}
	return nil
}()

// noSpan is that of an operation that nobody traces.
var noSpan = trace.SpanFromContext(context.Background())

// untraced says whether a span would go nowhere, and has no trace to take along.
func (t *telemetry) untraced(ctx context.Context) bool {
	return t.global && noTracers != nil && otel.GetTracerProvider() == noTracers && !trace.SpanContextFromContext(ctx).IsValid()
}

// observed is one operation that is under way, or has ended.
type observed struct {
	t     *telemetry
	op    *operation // nil: nobody looks at it
	span  trace.Span
	began time.Time // zero: nobody measures
}

// begin starts a span. The context that it returns has it.
func (t *telemetry) begin(ctx context.Context, v verb, queue string, more ...trace.SpanStartOption) (context.Context, observed) {
	untraced, measured := t.untraced(ctx), t.operations.Enabled(ctx)
	o := observed{t: t, span: noSpan}
	if untraced && !measured {
		return ctx, o
	}
	if measured {
		o.began = time.Now()
	}
	op := t.operation(v, queue)
	if o.op = op; untraced {
		return ctx, o
	}
	start := op.start
	if len(more) > 0 {
		start = append(start[:len(start):len(start)], more...)
	}
	ctx, o.span = t.tracer.Start(ctx, op.name, start...)
	return ctx, o
}

// end ends the span, and measures how long it took as an operation of a client.
func (o observed) end(err error) {
	o.endSpan(err)
	if !o.began.IsZero() {
		o.t.operations.RecordSet(context.Background(), time.Since(o.began).Seconds(), o.labels(err))
	}
}

func (o observed) endSpan(err error) {
	if err != nil && o.span.IsRecording() {
		o.span.SetAttributes(semconv.ErrorTypeKey.String(errorType(err)))
		o.span.SetStatus(codes.Error, cutText(err.Error(), maxStatusText))
	}
	o.span.End()
}

// maxStatusText bounds what a span says of an error.
const maxStatusText = 1 << 10

// labels are those of the metrics.
func (o observed) labels(err error) attribute.Set {
	if err == nil {
		return o.op.labels
	}
	return attribute.NewSet(append(o.op.labels.ToSlice(), semconv.ErrorTypeKey.String(errorType(err)))...)
}

// errorType is a word of which there are few: the code of a refusal, or the type of a handler's error.
func errorType(err error) string {
	var refused *Error
	var panicked *PanicError
	switch {
	case errors.As(err, &refused):
		return refused.Code
	case errors.As(err, &panicked):
		return "panic"
	case errors.Is(err, ErrClosed):
		return "closed"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	}
	return cutText(typeOf(err), 256)
}

// headerTrace is the trace of a task's headers; not valid if they have none.
func (t *telemetry) headerTrace(headers map[string]string) trace.SpanContext {
	if len(headers) == 0 {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(t.carry.Extract(context.Background(), propagation.MapCarrier(headers)))
}

// maxLinks bounds the links of one span: exporters cut there, too.
const maxLinks = 128

func linkTo(to trace.SpanContext) trace.SpanStartOption {
	return trace.WithLinks(trace.Link{SpanContext: to})
}

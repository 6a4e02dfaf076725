// Package telemetry makes the spans and metrics of clients and workers, with the names of OpenTelemetry's messaging conventions, and
// propagates trace context in tasks. It does not know how calls are made.
package telemetry

import (
	"context"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/version"
	"github.com/pawlq/pawl/pawltype"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"
	"go.opentelemetry.io/otel/trace"
)

// Config configures where spans and metrics go. Zero fields have defaults.
type Config struct {
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	Propagator     propagation.TextMapPropagator
	LinkedTraces   bool
}

// scope is the instrumentation scope of the SDK's spans and metrics.
const scope = "github.com/pawlq/pawl"

// Attributes that the conventions don't define.
const (
	attrTaskType    = attribute.Key("pawl.task.type")
	attrTaskAttempt = attribute.Key("pawl.task.attempt")
	attrTaskOutcome = attribute.Key("pawl.task.outcome")
)

// Verb is an operation of the messaging conventions.
type Verb uint8

const (
	VerbSend      Verb = iota
	VerbCreate         // one task of a batch
	VerbSendBatch      // in addition to VerbCreate of each task
	VerbClaim
	VerbProcess
	VerbAck
	VerbFail
	VerbRelease
	VerbSettle // many endings in one call
)

// verbs has the names and kinds of each verb. Read only.
var verbs = [...]struct {
	name string
	kind trace.SpanKind
	typ  attribute.KeyValue
}{
	VerbSend:      {"send", trace.SpanKindProducer, semconv.MessagingOperationTypeSend},
	VerbCreate:    {"create", trace.SpanKindProducer, semconv.MessagingOperationTypeCreate},
	VerbSendBatch: {"send", trace.SpanKindClient, semconv.MessagingOperationTypeSend},
	VerbClaim:     {"claim", trace.SpanKindClient, semconv.MessagingOperationTypeReceive},
	VerbProcess:   {"process", trace.SpanKindConsumer, semconv.MessagingOperationTypeProcess},
	VerbAck:       {"ack", trace.SpanKindClient, semconv.MessagingOperationTypeSettle},
	VerbFail:      {"fail", trace.SpanKindClient, semconv.MessagingOperationTypeSettle},
	VerbRelease:   {"release", trace.SpanKindClient, semconv.MessagingOperationTypeSettle},
	VerbSettle:    {"settle", trace.SpanKindClient, semconv.MessagingOperationTypeSettle},
}

// Telemetry makes a client's spans and metrics, and propagates trace context in tasks. If no provider is set, and there is no trace to
// propagate, it costs a call a few nanoseconds. Its methods are safe for concurrent use.
type Telemetry struct {
	tracer trace.Tracer
	global bool // tracer is that of the global provider
	carry  propagation.TextMapPropagator
	fields []string // written by carry
	w3c    bool     // carry writes nothing without a span
	linked bool
	server []attribute.KeyValue // of all spans and metrics

	operations messagingconv.ClientOperationDuration
	runs       messagingconv.ProcessDuration
	sent       messagingconv.ClientSentMessages
	consumed   messagingconv.ClientConsumedMessages

	known      sync.Map // operation by operationOn: caches what all spans of a kind share
	knownCount atomic.Int64
}

// operationOn is a verb on a queue, "" if it is on several.
type operationOn struct {
	verb  Verb
	queue string
}

// operation is what all spans of a verb on a queue have in common. Samplers see it.
type operation struct {
	name   string
	start  []trace.SpanStartOption
	labels attribute.Set // for metrics
}

// maxKnown bounds the cached operations; beyond that they are made each time.
const maxKnown = 10_000

// New returns the telemetry of a client of the server that the attributes describe.
func New(cfg Config, server ...attribute.KeyValue) (*Telemetry, error) {
	t := &Telemetry{carry: cfg.Propagator, linked: cfg.LinkedTraces, server: server}
	if t.carry == nil {
		t.carry, t.w3c = propagation.TraceContext{}, true
	}
	t.fields = t.carry.Fields()
	tracers, meters := cfg.TracerProvider, cfg.MeterProvider
	if tracers == nil {
		tracers, t.global = otel.GetTracerProvider(), true
	}
	if meters == nil {
		meters = otel.GetMeterProvider()
	}
	t.tracer = tracers.Tracer(scope, trace.WithInstrumentationVersion(version.Version), trace.WithSchemaURL(semconv.SchemaURL))
	meter := meters.Meter(scope, metric.WithInstrumentationVersion(version.Version), metric.WithSchemaURL(semconv.SchemaURL))
	buckets := metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
	var errs [4]error
	t.operations, errs[0] = messagingconv.NewClientOperationDuration(meter, buckets)
	t.runs, errs[1] = messagingconv.NewProcessDuration(meter, buckets)
	t.sent, errs[2] = messagingconv.NewClientSentMessages(meter)
	t.consumed, errs[3] = messagingconv.NewClientConsumedMessages(meter)
	return t, errors.Join(errs[:]...)
}

// Server returns the attributes of a client's server: a host and a port, or the path of a socket; "" is not known.
func Server(host, port string) []attribute.KeyValue {
	if host == "" {
		return nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil { // a socket, or the name of a service that Dial looks up
		return []attribute.KeyValue{semconv.ServerAddress(host)}
	}
	return []attribute.KeyValue{semconv.ServerAddress(host), semconv.ServerPort(int(n))}
}

func (t *Telemetry) operation(v Verb, queue string) *operation {
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

// noTracers is the global provider of a program that has set none; nil: it had set one before this package was
// initialized. Making one of its spans, which record nothing, takes a microsecond.
var noTracers = ifUnset(otel.GetTracerProvider())

// ifUnset returns p if it is the global provider of a program that has set none, else nil.
func ifUnset(p trace.TracerProvider) trace.TracerProvider {
	if t := reflect.TypeOf(p); t.Kind() == reflect.Pointer && strings.HasSuffix(t.Elem().PkgPath(), "/otel/internal/global") {
		return p
	}
	return nil
}

// noSpan is the span of an operation that is not traced.
var noSpan = trace.SpanFromContext(context.Background())

// untraced reports whether a span would go nowhere, and has no trace to propagate.
func (t *Telemetry) untraced(ctx context.Context) bool {
	return t.global && otel.GetTracerProvider() == noTracers && !trace.SpanContextFromContext(ctx).IsValid()
}

// Span is one operation in progress, or ended.
type Span struct {
	t     *Telemetry
	op    *operation // nil: neither traced nor measured
	span  trace.Span
	began time.Time // zero: not measured
}

// SpanContext returns the span's context; not valid if there is no span.
func (o Span) SpanContext() trace.SpanContext { return o.span.SpanContext() }

// begin starts a span. The returned context contains it.
func (t *Telemetry) begin(ctx context.Context, v Verb, queue string, more ...trace.SpanStartOption) (context.Context, Span) {
	untraced, measured := t.untraced(ctx), t.operations.Enabled(ctx)
	o := Span{t: t, span: noSpan}
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
	start := op.start[:len(op.start):len(op.start)] // it is shared
	ctx, o.span = t.tracer.Start(ctx, op.name, append(start, more...)...)
	return ctx, o
}

// End ends the span, and records its duration as an operation of a client.
func (o Span) End(err error) {
	o.endSpan(err)
	if !o.began.IsZero() {
		o.t.operations.RecordSet(context.Background(), time.Since(o.began).Seconds(), o.labels(err))
	}
}

func (o Span) endSpan(err error) {
	if err != nil && o.span.IsRecording() {
		o.span.SetAttributes(semconv.ErrorTypeKey.String(errorType(err)))
		o.span.SetStatus(codes.Error, convert.CutText(err.Error(), maxStatusText))
	}
	o.span.End()
}

// maxStatusText bounds the error text of a span.
const maxStatusText = 1 << 10

// labels returns the labels of the metrics.
func (o Span) labels(err error) attribute.Set {
	if err == nil {
		return o.op.labels
	}
	return attribute.NewSet(append(o.op.labels.ToSlice(), semconv.ErrorTypeKey.String(errorType(err)))...)
}

// errorType returns one of a small set of words: the code of a refusal, or the type of a handler's error.
func errorType(err error) string {
	var refused *pawltype.Error
	var panicked *pawltype.PanicError
	switch {
	case errors.As(err, &refused):
		return string(refused.Code)
	case errors.As(err, &panicked):
		return "panic"
	case errors.Is(err, pawltype.ErrClosed):
		return "closed"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	}
	return convert.CutText(convert.ErrorType(err), 256)
}

// headerTrace returns the trace in a task's headers; not valid if there is none.
func (t *Telemetry) headerTrace(headers map[string]string) trace.SpanContext {
	if len(headers) == 0 {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(t.carry.Extract(context.Background(), propagation.MapCarrier(headers)))
}

// maxLinks bounds the links of one span: exporters have the same limit.
const maxLinks = 128

func linkTo(to trace.SpanContext) trace.SpanStartOption {
	return trace.WithLinks(trace.Link{SpanContext: to})
}

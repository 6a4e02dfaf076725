package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// Traces are exported as the standard OTEL_* settings say, and not at all unless one of them asks for it. Those that are read here decide
// whether and how; the endpoint, headers, timeouts, the sampler, limits and the resource are read by OpenTelemetry's own packages.
const (
	envDisabled       = "OTEL_SDK_DISABLED"
	envExporter       = "OTEL_TRACES_EXPORTER"
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	envProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	envTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
)

// flushTimeout bounds how long the end of a command waits for a collector.
const flushTimeout = 3 * time.Second

// traced is the RunE of a command that takes part in traces: it continues the one that the environment names (TRACEPARENT), and exports
// its spans. Service is the name of that in the traces, unless OTEL_SERVICE_NAME says another.
func (a *app) traced(service string, run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		cmd.SetContext(propagation.TraceContext{}.Extract(cmd.Context(), envCarrier{}))
		provider, err := openTraces(cmd.Context(), service)
		if err != nil {
			return err
		}
		if provider == nil {
			return run(cmd, args)
		}
		a.logTraces(slog.New(slog.NewTextHandler(a.err, nil)))
		a.tracers = provider
		err = run(cmd, args)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), flushTimeout)
		defer cancel()
		if lost := provider.Shutdown(ctx); lost != nil {
			a.traceLog.Warn("the last traces were not exported", "error", lost)
		}
		return err
	}
}

// logTraces sets where what exports the traces says that it can't.
func (a *app) logTraces(log *slog.Logger) {
	a.traceLog = log
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces were not exported", "error", err) }))
}

// openTraces is nil if no traces are wanted.
func openTraces(ctx context.Context, service string) (*sdktrace.TracerProvider, error) {
	exporter, err := newExporter(ctx)
	if exporter == nil || err != nil {
		return nil, err
	}
	from, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName(service), semconv.ServiceVersion(version)),
		resource.WithFromEnv()) // the last wins
	if err != nil {
		return nil, usage("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(from)), nil
}

// newExporter is nil if the settings ask for none.
func newExporter(ctx context.Context) (sdktrace.SpanExporter, error) {
	if off, err := strconv.ParseBool(cmp.Or(os.Getenv(envDisabled), "false")); err != nil {
		return nil, usage("%s=%q is neither true nor false", envDisabled, os.Getenv(envDisabled))
	} else if off {
		return nil, nil
	}
	switch name := os.Getenv(envExporter); {
	case name == "none", name == "" && os.Getenv(envEndpoint) == "" && os.Getenv(envTracesEndpoint) == "":
		return nil, nil
	case name != "" && name != "otlp":
		return nil, usage("%s=%q is neither otlp nor none", envExporter, name)
	}
	switch protocol := cmp.Or(os.Getenv(envTracesProtocol), os.Getenv(envProtocol), "http/protobuf"); protocol {
	case "http/protobuf":
		return otlptracehttp.New(ctx)
	case "grpc":
		return otlptracegrpc.New(ctx)
	default:
		return nil, usage("%s=%q is neither http/protobuf nor grpc", envProtocol, protocol)
	}
}

// envCarrier reads trace context from the environment, where its names are in capitals.
type envCarrier struct{}

func (envCarrier) Get(name string) string { return os.Getenv(strings.ToUpper(name)) }
func (envCarrier) Set(string, string)     {}
func (envCarrier) Keys() []string         { return propagation.TraceContext{}.Fields() }

// traceEnv is an environment with the trace of ctx in place of the one that it has.
func traceEnv(ctx context.Context, env []string) []string {
	said := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, said)
	out := make([]string, 0, len(env)+2)
	for _, v := range env {
		if name, _, _ := strings.Cut(v, "="); name != "TRACEPARENT" && name != "TRACESTATE" {
			out = append(out, v)
		}
	}
	for name, value := range said {
		out = append(out, fmt.Sprintf("%s=%s", strings.ToUpper(name), value))
	}
	return out
}

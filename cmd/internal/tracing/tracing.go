// Package tracing exports a command's spans, and a server's audit events as log records, over OTLP. OpenTelemetry's environment variables
// configure it; without them it exports nothing.
package tracing

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/internal/version"
	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// Traces are exported only if one of the standard OTEL_* variables asks for it. The variables read here decide whether
// and how. OpenTelemetry's own packages read those for the endpoint, headers, timeouts, the sampler, limits and the
// resource, once checkSettings has found them valid.
const envDisabled = "OTEL_SDK_DISABLED"

// The signals, as the variables have them.
const (
	traces = "TRACES"
	logs   = "LOGS"
)

// flushTimeout bounds how long a command waits for the collector when it ends.
const flushTimeout = 3 * time.Second

// Start makes a command part of a trace: it continues the one in the environment (TRACEPARENT), and exports spans until
// stop is called. service is the service name in the traces, unless OTEL_SERVICE_NAME overrides it. Export failures go
// to log.
func Start(a *cli.App, cmd *cobra.Command, service string, log *slog.Logger) (stop func(), err error) {
	cmd.SetContext(propagation.TraceContext{}.Extract(cmd.Context(), envCarrier{}))
	provider, err := open(cmd.Context(), service, log)
	if err != nil {
		return nil, err
	}
	if provider == nil {
		return func() {}, nil
	}
	a.Tracers = provider
	ctx := context.WithoutCancel(cmd.Context())
	return func() {
		ctx, cancel := context.WithTimeout(ctx, flushTimeout)
		defer cancel()
		if lost := provider.Shutdown(ctx); lost != nil {
			log.Warn("the last traces were not exported", "error", lost)
		}
	}, nil
}

// open returns nil if traces are not exported.
func open(ctx context.Context, service string, log *slog.Logger) (*sdktrace.TracerProvider, error) {
	protocol, err := protocolOf(traces)
	if protocol == "" || err != nil {
		return nil, err
	}
	if err := checkSettings(traces, traceSettings); err != nil {
		return nil, err
	}
	logErrors(log) // before any error can occur
	var exporter sdktrace.SpanExporter
	if protocol == overGRPC {
		exporter, err = otlptracegrpc.New(ctx)
	} else {
		exporter, err = otlptracehttp.New(ctx)
	}
	if err != nil {
		return nil, err
	}
	from, err := resourceOf(ctx, service)
	if err != nil {
		return nil, err
	}
	return sdktrace.NewTracerProvider(sdktrace.WithBatcher(&watchedExporter{SpanExporter: exporter, log: log}),
		sdktrace.WithResource(from)), nil
}

// resourceOf describes the process to the collector.
func resourceOf(ctx context.Context, service string) (*resource.Resource, error) {
	from, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName(service), semconv.ServiceVersion(version.Version)),
		resource.WithFromEnv()) // the last one takes precedence
	if err != nil {
		return nil, cli.Usage("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return from, nil
}

// The protocols.
const (
	overGRPC = "grpc"
	overHTTP = "http/protobuf"
)

// protocolOf returns the protocol by which a signal is exported; "": it is not.
func protocolOf(signal string) (string, error) {
	if off, err := strconv.ParseBool(cmp.Or(os.Getenv(envDisabled), "false")); err != nil {
		return "", cli.Usage("%s=%q is neither true nor false", envDisabled, os.Getenv(envDisabled))
	} else if off {
		return "", nil
	}
	exporter := "OTEL_" + signal + "_EXPORTER"
	_, endpoint := exporterSetting(signal, "ENDPOINT")
	switch name := os.Getenv(exporter); {
	case name == "none", name == "" && endpoint == "":
		return "", nil
	case name != "" && name != "otlp":
		return "", cli.Usage("%s=%q is neither otlp nor none", exporter, name)
	}
	switch name, protocol := exporterSetting(signal, "PROTOCOL"); protocol {
	case overHTTP, "":
		return overHTTP, nil
	case overGRPC:
		return overGRPC, nil
	default:
		return "", cli.Usage("%s=%q is neither http/protobuf nor grpc", name, protocol)
	}
}

// envCarrier reads trace context from the environment, where names are in upper case.
type envCarrier struct{}

func (envCarrier) Get(name string) string { return os.Getenv(strings.ToUpper(name)) }
func (envCarrier) Set(string, string)     {}
func (envCarrier) Keys() []string         { return propagation.TraceContext{}.Fields() }

// Env returns env with its trace context replaced by that of ctx.
func Env(ctx context.Context, env []string) []string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	out := make([]string, 0, len(env)+2)
	for _, v := range env {
		if name, _, _ := strings.Cut(v, "="); name != "TRACEPARENT" && name != "TRACESTATE" {
			out = append(out, v)
		}
	}
	for name, value := range carrier {
		out = append(out, fmt.Sprintf("%s=%s", strings.ToUpper(name), value))
	}
	return out
}

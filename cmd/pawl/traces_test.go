package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.opentelemetry.io/otel/trace"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

type collectorKey struct{}

// collector is where a script's processes export their spans to.
type collector struct {
	mu    sync.Mutex
	spans []string
}

func startCollector(ts *testscript.TestScript, _ bool, _ []string) {
	c := ts.Value(collectorKey{}).(*collector)
	server := httptest.NewServer(c)
	ts.Defer(server.Close)
	ts.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
}

// ServeHTTP takes an export, as OTLP over HTTP.
func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var export collectorv1.ExportTraceServiceRequest
	body, err := io.ReadAll(r.Body)
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &export) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, from := range export.GetResourceSpans() {
		service := ""
		for _, a := range from.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range from.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				kind := strings.ToLower(strings.TrimPrefix(s.GetKind().String(), "SPAN_KIND_"))
				c.spans = append(c.spans, fmt.Sprintf("%s %s %s in %x", service, kind, s.GetName(), s.GetTraceId()))
			}
		}
	}
}

func writeSpans(ts *testscript.TestScript) {
	c := ts.Value(collectorKey{}).(*collector)
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.spans)
	for _, line := range c.spans {
		fmt.Fprintln(ts.Stdout(), line)
	}
	c.spans = nil
}

// Settings that make no sense are refused by name, and without any nothing is exported.
func TestTraceSettings(t *testing.T) {
	type env map[string]string
	for _, c := range []struct {
		what   string
		env    env
		on     bool
		refuse string
	}{
		{"none", nil, false, ""},
		{"an endpoint", env{envEndpoint: "http://127.0.0.1:4318"}, true, ""},
		{"an endpoint of traces", env{envTracesEndpoint: "http://127.0.0.1:4318/v1/traces"}, true, ""},
		{"the exporter", env{envExporter: "otlp"}, true, ""},
		{"no exporter", env{envExporter: "none", envEndpoint: "http://127.0.0.1:4318"}, false, ""},
		{"disabled", env{envDisabled: "true", envEndpoint: "http://127.0.0.1:4318"}, false, ""},
		{"not disabled", env{envDisabled: "false", envExporter: "otlp"}, true, ""},
		{"gRPC", env{envProtocol: "grpc", envEndpoint: "http://127.0.0.1:4317"}, true, ""},
		{"the protocol of traces", env{envProtocol: "x", envTracesProtocol: "grpc", envExporter: "otlp"}, true, ""},
		{"another protocol", env{envProtocol: "http/json", envExporter: "otlp"}, false, "http/json"},
		{"another exporter", env{envExporter: "zipkin"}, false, "zipkin"},
		{"neither on nor off", env{envDisabled: "maybe"}, false, "maybe"},
		{"bad attributes", env{envExporter: "otlp", "OTEL_RESOURCE_ATTRIBUTES": "a"}, false, "OTEL_RESOURCE_ATTRIBUTES"},
	} {
		t.Run(c.what, func(t *testing.T) {
			for _, name := range []string{envDisabled, envExporter, envEndpoint, envTracesEndpoint, envProtocol, envTracesProtocol, "OTEL_RESOURCE_ATTRIBUTES"} {
				t.Setenv(name, c.env[name])
			}
			provider, err := openTraces(t.Context(), "pawl")
			if c.refuse != "" && (err == nil || !strings.Contains(err.Error(), c.refuse)) || c.refuse == "" && err != nil || (provider != nil) != c.on {
				t.Errorf("on is %t, error %v; want %t, %q", provider != nil, err, c.on, c.refuse)
			}
			if provider != nil {
				if err := provider.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A command finds the trace of its task in the environment, never that of the worker.
func TestTraceEnv(t *testing.T) {
	env := []string{"TRACEPARENT=old", "A=b", "TRACESTATE=old"}
	if got := traceEnv(t.Context(), env); !slices.Equal(got, []string{"A=b"}) {
		t.Errorf("without a trace: %q", got)
	}
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	got := traceEnv(trace.ContextWithSpanContext(context.Background(), span), env)
	if want := []string{"A=b", "TRACEPARENT=00-01000000000000000000000000000000-0200000000000000-01"}; !slices.Equal(got, want) {
		t.Errorf("with a trace: %q, want %q", got, want)
	}
}

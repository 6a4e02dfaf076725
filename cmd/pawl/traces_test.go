package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/rogpeppe/go-internal/testscript"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
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
	const (
		envEndpoint, envTracesEndpoint = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
		envProtocol, envTracesProtocol = "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	)
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
			provider, err := openTraces(t.Context(), "pawl", slog.New(slog.DiscardHandler))
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

// What OpenTelemetry's packages would pass over is refused: the setting, its value and the rule are named, and no secret.
func TestTraceSettingsThatMakeNoSense(t *testing.T) {
	const otlp = "OTEL_EXPORTER_OTLP_"
	good := t.TempDir() + "/ca.pem"
	writeTestRoots(t, good)
	for _, c := range []struct{ setting, refuse string }{
		{"OTEL_TRACES_SAMPLER=always_of", `OTEL_TRACES_SAMPLER="always_of" is none of always_on, always_off, parentbased_always_on,`},
		{"OTEL_TRACES_SAMPLER=always_off", ""},
		{"OTEL_TRACES_SAMPLER=TraceIDRatio OTEL_TRACES_SAMPLER_ARG=0.25", ""},
		{"OTEL_TRACES_SAMPLER=traceidratio OTEL_TRACES_SAMPLER_ARG=7", `OTEL_TRACES_SAMPLER_ARG="7" is not a part of all traces from 0 to 1`},
		{"OTEL_TRACES_SAMPLER=traceidratio OTEL_TRACES_SAMPLER_ARG=NaN", `SAMPLER_ARG="NaN" is not`},
		{"OTEL_TRACES_SAMPLER=traceidratio OTEL_TRACES_SAMPLER_ARG=abc", `SAMPLER_ARG="abc" is not`},
		{"OTEL_TRACES_SAMPLER_ARG=0.1", `SAMPLER_ARG="0.1" is for the samplers traceidratio and parentbased_traceidratio, but OTEL_TRACES_SAMPLER is ""`},
		{otlp + "ENDPOINT=localhost:4318", otlp + `ENDPOINT: "localhost:4318" is not a URL: want http://HOST:PORT`},
		{otlp + "ENDPOINT=127.0.0.1:4317 " + otlp + "PROTOCOL=grpc", otlp + `ENDPOINT: "127.0.0.1:4317" is not a URL`},
		{otlp + "ENDPOINT=ftp://a", `"ftp://a" is not a URL`},
		{otlp + "ENDPOINT=https://u:secret@a", `"https://u:xxxxx@a": a user, a query or a fragment would not be sent`},
		{otlp + "ENDPOINT=u:secret@a:1", `"…@a:1" is not a URL`},
		{otlp + "ENDPOINT=http://a:99999", "the port is not from 1 to 65535"},
		{otlp + "ENDPOINT=https://[::1]:4318/base", ""},
		{otlp + "TRACES_ENDPOINT=localhost:4318 " + otlp + "ENDPOINT=http://a", otlp + "TRACES_ENDPOINT: "},
		{otlp + "ENDPOINT=nonsense " + otlp + "TRACES_ENDPOINT=http://a", ""},
		{otlp + "HEADERS=bad=1,secret", otlp + "HEADERS: header 2 is not NAME=VALUE"},
		{otlp + "HEADERS=bad(header=secret", "the name of header 1 has other characters"},
		{otlp + "HEADERS=a=secret%zz", "the value of header 1 (a) is not text"},
		{otlp + "HEADERS=a=secret%0a", "the value of header 1 (a) is not text"},
		{otlp + "HEADERS=authorization=Bearer%20secret,x-y=1", ""},
		{otlp + "TIMEOUT=abc", otlp + `TIMEOUT="abc" is not a number of milliseconds from 0 to 3600000, without a unit`},
		{otlp + "TRACES_TIMEOUT=10s", otlp + `TRACES_TIMEOUT="10s" is not`},
		{otlp + "COMPRESSION=zip", otlp + `COMPRESSION="zip" is none of gzip, none`},
		{otlp + "INSECURE=perhaps", otlp + `INSECURE="perhaps" is none of true, false`},
		{otlp + "CERTIFICATE=/nope", otlp + `CERTIFICATE="/nope" is of no use: open /nope`},
		{otlp + "CERTIFICATE=" + good, ""},
		{otlp + "CLIENT_KEY=/nope", otlp + `CLIENT_CERTIFICATE="" and ` + otlp + `CLIENT_KEY="/nope" go together`},
		{otlp + "CLIENT_KEY=/nope " + otlp + "CLIENT_CERTIFICATE=/nope", `"/nope": open /nope`},
		{"OTEL_BSP_SCHEDULE_DELAY=abc", `OTEL_BSP_SCHEDULE_DELAY="abc" is not a number of milliseconds from 1 to`},
		{"OTEL_BSP_EXPORT_TIMEOUT=0", `OTEL_BSP_EXPORT_TIMEOUT="0" is not`},
		{"OTEL_BSP_MAX_QUEUE_SIZE=-1", `OTEL_BSP_MAX_QUEUE_SIZE="-1" is not a number of spans from 1 to 1000000`},
		{"OTEL_BSP_MAX_EXPORT_BATCH_SIZE=2049", `OTEL_BSP_MAX_EXPORT_BATCH_SIZE="2049" is not a number of spans from 1 to 2048`},
		{"OTEL_BSP_MAX_EXPORT_BATCH_SIZE=2049 OTEL_BSP_MAX_QUEUE_SIZE=3000", ""},
		{"OTEL_SPAN_EVENT_COUNT_LIMIT=many", `OTEL_SPAN_EVENT_COUNT_LIMIT="many" is not a number from 0 on, or -1 for no limit`},
		{"OTEL_LINK_ATTRIBUTE_COUNT_LIMIT=-1", ""},
		{"OTEL_TRACES_EXPORTER=none OTEL_TRACES_SAMPLER=nonsense", ""}, // nobody reads it
	} {
		t.Run(c.setting, func(t *testing.T) {
			t.Setenv(envExporter, "otlp")
			for setting := range strings.FieldsSeq(c.setting) {
				name, value, _ := strings.Cut(setting, "=")
				t.Setenv(name, value)
			}
			provider, err := openTraces(t.Context(), "pawl", slog.New(slog.DiscardHandler))
			if c.refuse == "" && err != nil || c.refuse != "" && (err == nil || !strings.Contains(err.Error(), c.refuse)) {
				t.Errorf("got %v, want %q", err, c.refuse)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("a secret is told: %v", err)
			}
			if provider != nil {
				_ = provider.Shutdown(t.Context())
			}
		})
	}
}

// writeTestRoots writes the certificate of an authority.
func writeTestRoots(t *testing.T, path string) {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	defer server.Close()
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(path, block, 0o600); err != nil {
		t.Fatal(err)
	}
}

// fakeExporter has outages.
type fakeExporter struct{ err error }

func (f *fakeExporter) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return f.err }
func (f *fakeExporter) Shutdown(context.Context) error                             { return nil }

// An outage of the collector is two lines, however many batches it takes, and a collector that comes and goes fills no log.
func TestTraceOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		fake := &fakeExporter{}
		w := &watchedExporter{SpanExporter: fake, log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: withoutTime}))}
		export := func(batches int, err error) {
			t.Helper()
			fake.err = err
			for range batches {
				if err := w.ExportSpans(t.Context(), make([]sdktrace.ReadOnlySpan, 10)); err != nil {
					t.Errorf("an error that was told is returned: %v", err)
				}
				time.Sleep(time.Second)
			}
		}
		gone := errors.New("connection refused")
		export(5, nil)
		export(90, gone)
		export(5, nil)
		for range 20 { // 40 s
			export(1, gone)
			export(1, nil)
		}
		time.Sleep(time.Minute)
		export(3, gone)
		if err := w.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		want := `level=WARN msg="traces are not exported" error="connection refused"
level=INFO msg="traces are exported again" spans_lost=900 after=1m30s
level=WARN msg="traces are not exported" error="connection refused"
level=INFO msg="traces are exported again" spans_lost=10 after=1s
level=WARN msg="traces are not exported" error="connection refused"
level=WARN msg="traces were not exported" spans_lost=220
`
		if out.String() != want {
			t.Errorf("the log is\n%swant\n%s", out.String(), want)
		}
	})
}

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// What OpenTelemetry's packages say is a line of the log, without the values that they say it of.
func TestTraceComplaints(t *testing.T) {
	var out bytes.Buffer
	log := logr.New(complaints{slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: withoutTime}))})
	log.Error(errors.New("missing ="), "parse headers", "input", "secret")
	log.V(warnings).Info("careful", "input", "secret")
	log.WithName("x").WithValues("input", "secret").V(4).Info("TracerProvider created")
	want := "level=WARN msg=traces problem=\"parse headers\" error=\"missing =\"\nlevel=WARN msg=traces problem=careful\n"
	if out.String() != want {
		t.Errorf("the log is %q, want %q", out.String(), want)
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

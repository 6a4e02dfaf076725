package tracing

import (
	"encoding/pem"
	"log/slog"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// Invalid settings are rejected by name, and without settings nothing is exported.
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
		{"the exporter", env{"OTEL_TRACES_EXPORTER": "otlp"}, true, ""},
		{"no exporter", env{"OTEL_TRACES_EXPORTER": "none", envEndpoint: "http://127.0.0.1:4318"}, false, ""},
		{"disabled", env{envDisabled: "true", envEndpoint: "http://127.0.0.1:4318"}, false, ""},
		{"not disabled", env{envDisabled: "false", "OTEL_TRACES_EXPORTER": "otlp"}, true, ""},
		{"gRPC", env{envProtocol: "grpc", envEndpoint: "http://127.0.0.1:4317"}, true, ""},
		{"the protocol of traces", env{envProtocol: "x", envTracesProtocol: "grpc", "OTEL_TRACES_EXPORTER": "otlp"}, true, ""},
		{"another protocol", env{envProtocol: "http/json", "OTEL_TRACES_EXPORTER": "otlp"}, false, "http/json"},
		{"another exporter", env{"OTEL_TRACES_EXPORTER": "zipkin"}, false, "zipkin"},
		{"neither on nor off", env{envDisabled: "maybe"}, false, "maybe"},
		{"bad attributes", env{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_RESOURCE_ATTRIBUTES": "a"}, false, "OTEL_RESOURCE_ATTRIBUTES"},
	} {
		t.Run(c.what, func(t *testing.T) {
			for _, name := range []string{envDisabled, "OTEL_TRACES_EXPORTER", envEndpoint, envTracesEndpoint,
				envProtocol, envTracesProtocol, "OTEL_RESOURCE_ATTRIBUTES"} {
				t.Setenv(name, c.env[name])
			}
			provider, err := open(t.Context(), "pawl", slog.New(slog.DiscardHandler))
			if c.refuse != "" && (err == nil || !strings.Contains(err.Error(), c.refuse)) || c.refuse == "" && err != nil ||
				(provider != nil) != c.on {
				t.Errorf("tracing enabled is %t, error %v, want %t, %q", provider != nil, err, c.on, c.refuse)
			}
			if provider != nil {
				if err := provider.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Settings that OpenTelemetry's packages would ignore are rejected. The error has the setting, its value and the rule, but no secret.
func TestInvalidTraceSettings(t *testing.T) {
	const otlp = "OTEL_EXPORTER_OTLP_"
	good := t.TempDir() + "/ca.pem"
	writeTestRoots(t, good)
	for _, c := range []struct{ setting, refuse string }{
		{"OTEL_TRACES_SAMPLER=always_of", `OTEL_TRACES_SAMPLER="always_of" is not one of always_on, always_off, parentbased_always_on,`},
		{"OTEL_TRACES_SAMPLER=always_off", ""},
		{"OTEL_TRACES_SAMPLER=TraceIDRatio OTEL_TRACES_SAMPLER_ARG=0.25", ""},
		{"OTEL_TRACES_SAMPLER=traceidratio OTEL_TRACES_SAMPLER_ARG=7",
			`OTEL_TRACES_SAMPLER_ARG="7" is not a part of all traces from 0 to 1`},
		{"OTEL_TRACES_SAMPLER=traceidratio OTEL_TRACES_SAMPLER_ARG=NaN", `SAMPLER_ARG="NaN" is not`},
		{"OTEL_TRACES_SAMPLER=traceidratio OTEL_TRACES_SAMPLER_ARG=abc", `SAMPLER_ARG="abc" is not`},
		{"OTEL_TRACES_SAMPLER_ARG=0.1", `SAMPLER_ARG="0.1" is for the samplers traceidratio and parentbased_traceidratio, but ` +
			`OTEL_TRACES_SAMPLER is ""`},
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
		{otlp + "COMPRESSION=zip", otlp + `COMPRESSION="zip" is not one of gzip, none`},
		{otlp + "INSECURE=perhaps", otlp + `INSECURE="perhaps" is not one of true, false`},
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
		{"OTEL_TRACES_EXPORTER=none OTEL_TRACES_SAMPLER=nonsense", ""}, // not used
	} {
		t.Run(c.setting, func(t *testing.T) {
			t.Setenv("OTEL_TRACES_EXPORTER", "otlp")
			for setting := range strings.FieldsSeq(c.setting) {
				name, value, _ := strings.Cut(setting, "=")
				t.Setenv(name, value)
			}
			provider, err := open(t.Context(), "pawl", slog.New(slog.DiscardHandler))
			if c.refuse == "" && err != nil || c.refuse != "" && (err == nil || !strings.Contains(err.Error(), c.refuse)) {
				t.Errorf("got error %v, want %q", err, c.refuse)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error reveals a secret: %v", err)
			}
			if provider != nil {
				_ = provider.Shutdown(t.Context())
			}
		})
	}
}

// writeTestRoots writes a CA certificate.
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

package tracing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// logCollector receives log records.
type logCollector struct {
	collectorv1.UnimplementedLogsServiceServer
	mu      sync.Mutex
	refusal codes.Code // of all exports; OK: none
	partly  bool       // it rejects a record of each export
	records []string
}

func (c *logCollector) set(refusal codes.Code, partly bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusal, c.partly = refusal, partly
}

func (c *logCollector) take() (records []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	records, c.records = c.records, nil
	return records
}

// Export implements the collector's service.
func (c *logCollector) Export(_ context.Context, r *collectorv1.ExportLogsServiceRequest) (*collectorv1.ExportLogsServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refusal != codes.OK {
		return nil, status.Error(c.refusal, "down")
	}
	for _, from := range r.GetResourceLogs() {
		service := ""
		for _, a := range from.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range from.GetScopeLogs() {
			for _, l := range scope.GetLogRecords() {
				line := fmt.Sprintf("%s %d %s %s %s: %s", service, l.GetTimeUnixNano(), l.GetSeverityNumber(), l.GetSeverityText(),
					l.GetEventName(), l.GetBody().GetStringValue())
				for _, a := range l.GetAttributes() {
					line += fmt.Sprintf(" %s=%v%d%t", a.GetKey(), a.GetValue().GetStringValue(), a.GetValue().GetIntValue(),
						a.GetValue().GetBoolValue())
				}
				c.records = append(c.records, line)
			}
		}
	}
	if c.partly {
		return &collectorv1.ExportLogsServiceResponse{PartialSuccess: &collectorv1.ExportLogsPartialSuccess{RejectedLogRecords: 1,
			ErrorMessage: "too old"}}, nil
	}
	return &collectorv1.ExportLogsServiceResponse{}, nil
}

// httpCodes are the same refusals over HTTP.
var httpCodes = map[codes.Code]int{codes.InvalidArgument: http.StatusBadRequest, codes.Internal: http.StatusInternalServerError,
	codes.Unauthenticated: http.StatusUnauthorized, codes.PermissionDenied: http.StatusForbidden, codes.Unimplemented: http.StatusNotFound}

// ServeHTTP receives an export in OTLP over HTTP.
func (c *logCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in collectorv1.ExportLogsServiceRequest
	body, err := io.ReadAll(r.Body)
	if err != nil || r.URL.Path != "/v1/logs" || proto.Unmarshal(body, &in) != nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	answer, err := c.Export(r.Context(), &in)
	if err != nil {
		w.WriteHeader(httpCodes[status.Code(err)])
		return
	}
	out, _ := proto.Marshal(answer)
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(out)
}

// Records arrive with all that they hold, over both protocols. A failure is returned, so that the records are sent
// again, and an outage logs two lines. What the collector rejects for good, all or some of it, is logged, counted and
// not sent again.
func TestLogsAreExported(t *testing.T) {
	c := &logCollector{}
	web := httptest.NewServer(c)
	defer web.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rpc := grpc.NewServer()
	collectorv1.RegisterLogsServiceServer(rpc, c)
	go func() { _ = rpc.Serve(l) }()
	defer rpc.Stop()
	for protocol, endpoint := range map[string]string{"": web.URL, overGRPC: "http://" + l.Addr().String()} {
		t.Run("protocol "+protocol, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
			t.Setenv("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", protocol)
			var lines bytes.Buffer
			export, stop, err := Logs(t.Context(), "pawl",
				slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{ReplaceAttr: withoutTime})))
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
			r := slog.NewRecord(time.Unix(1, 5), slog.LevelWarn, "a caller was refused", 0)
			r.AddAttrs(slog.String("event", "refusals"), slog.Int("left_out", 7), slog.Bool("unverified", true))
			want := "pawl 1000000005 SEVERITY_NUMBER_WARN WARN pawl.refusals: a caller was refused event=refusals0false left_out=7false " +
				"unverified=0true"
			ended, end := context.WithCancel(t.Context())
			end()
			if rejected, err := export(ended, []slog.Record{r}); rejected != 0 || err == nil || lines.Len() != 0 {
				t.Errorf("when the node stops: %d are rejected, %v, and the log is %q", rejected, err, &lines)
			}
			if rejected, err := export(t.Context(), []slog.Record{r, r}); rejected != 0 || err != nil {
				t.Fatal(rejected, err)
			}
			if got := c.take(); len(got) != 2 || got[0] != want || got[1] != want {
				t.Errorf("arrived: %q, want twice %q", got, want)
			}
			for _, wrong := range []codes.Code{codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented} {
				c.set(wrong, false)
				if rejected, err := export(t.Context(), []slog.Record{r}); rejected != 0 || err == nil {
					t.Errorf("after %v: %d are rejected, and the others are not sent again: %v", wrong, rejected, err)
				}
			}
			c.set(codes.OK, false)
			if rejected, err := export(t.Context(), []slog.Record{r}); rejected != 0 || err != nil {
				t.Error(rejected, err)
			}
			if got := c.take(); len(got) != 1 {
				t.Errorf("after an outage arrived %q", got)
			}
			if log := lines.String(); strings.Count(log, "\n") != 2 ||
				!strings.Contains(log, `level=WARN msg="audit events are not exported: they wait" error=`) ||
				!strings.Contains(log, `level=INFO msg="audit events are exported again" after=`) {
				t.Errorf("the log is\n%s", log)
			}
			lines.Reset()
			c.set(codes.OK, true)
			defer func() { c.set(codes.OK, false); c.take() }()
			for range 3 {
				if rejected, err := export(t.Context(), []slog.Record{r, r}); rejected != 1 || err != nil {
					t.Errorf("of what the collector took in part, %d are rejected, and the others are sent again: %v", rejected, err)
				}
			}
			for _, final := range []codes.Code{codes.InvalidArgument, codes.Internal} {
				c.set(final, false)
				if rejected, err := export(t.Context(), []slog.Record{r, r}); rejected != 2 || err != nil {
					t.Errorf("after %v: %d are rejected, and the others are sent again: %v", final, rejected, err)
				}
			}
			if log := lines.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "too old (1 logs rejected)") {
				t.Errorf("the log of rejections is\n%s", log)
			}
		})
	}
}

// What the exporter over HTTP says of an answer is understood.
func TestRejectedBatches(t *testing.T) {
	for answer, want := range map[string]int{"400 Bad Request (body: 401 )": 3, "413 Request Entity Too Large (body: x)": 3, "500": 3,
		"401 Unauthorized (body: 400 )": 0, "404": 0} {
		if n, final := rejectedOf(errors.New("failed to send logs to http://a:400/500: "+answer), 3); n != want || final != (want > 0) {
			t.Errorf("%s: %d are rejected, for good: %t", answer, n, final)
		}
	}
}

// A record that is too large for a collector over gRPC is rejected for good; several that are too large together are not.
func TestTooLargeForACollector(t *testing.T) {
	large := status.Error(codes.ResourceExhausted, "grpc: received message larger than max (5000000 vs. 4194304)")
	for _, c := range []struct {
		err     error
		records int
		want    int
	}{{large, 1, 1}, {large, 2, 0}, {status.Error(codes.ResourceExhausted, "slow down"), 1, 0},
		{status.Error(codes.Unavailable, "larger than max"), 1, 0}} {
		if n, final := rejectedOf(c.err, c.records); n != c.want || final != (c.want > 0) {
			t.Errorf("%v of %d records: %d are rejected, for good: %t", c.err, c.records, n, final)
		}
	}
}

// Log records are exported only if a variable for them, or for all signals, asks for it. Invalid settings are refused
// by name, and reveal nothing.
func TestLogSettings(t *testing.T) {
	const otlp = "OTEL_EXPORTER_OTLP_"
	for _, c := range []struct {
		settings string
		exports  bool
		refuse   string
	}{
		{"", false, ""},
		{otlp + "ENDPOINT=http://a", true, ""},
		{otlp + "LOGS_ENDPOINT=http://a", true, ""},
		{otlp + "TRACES_ENDPOINT=http://a", false, ""},
		{otlp + "ENDPOINT=http://a OTEL_LOGS_EXPORTER=none", false, ""},
		{otlp + "ENDPOINT=http://a OTEL_TRACES_EXPORTER=none", true, ""},
		{otlp + "ENDPOINT=http://a OTEL_SDK_DISABLED=true", false, ""},
		{otlp + "ENDPOINT=http://a OTEL_BSP_MAX_QUEUE_SIZE=nonsense", true, ""}, // of traces
		{"OTEL_LOGS_EXPORTER=otlp", true, ""},
		{"OTEL_LOGS_EXPORTER=console", false, `OTEL_LOGS_EXPORTER="console" is neither otlp nor none`},
		{"OTEL_LOGRECORD_ATTRIBUTE_COUNT_LIMIT=nonsense", false, ""}, // nothing is exported
		{otlp + "ENDPOINT=http://a OTEL_LOGRECORD_ATTRIBUTE_COUNT_LIMIT=nonsense", false,
			`OTEL_LOGRECORD_ATTRIBUTE_COUNT_LIMIT="nonsense" is not a number`},
		{otlp + "ENDPOINT=http://a OTEL_LOGRECORD_ATTRIBUTE_VALUE_LENGTH_LIMIT=-2", false,
			`OTEL_LOGRECORD_ATTRIBUTE_VALUE_LENGTH_LIMIT="-2" is not a number`},
		{otlp + "LOGS_ENDPOINT=localhost:4318", false, otlp + `LOGS_ENDPOINT: "localhost:4318" is not a URL`},
		{otlp + "ENDPOINT=http://a " + otlp + "LOGS_PROTOCOL=http/json", false, otlp + `LOGS_PROTOCOL="http/json" is neither`},
		{otlp + "ENDPOINT=http://a " + otlp + "LOGS_HEADERS=a=secret%zz", false, otlp + "LOGS_HEADERS: the value of header 1 (a)"},
		{otlp + "ENDPOINT=http://a " + otlp + "LOGS_CLIENT_KEY=/nope", false, otlp + `LOGS_CLIENT_KEY="/nope" go together`},
	} {
		t.Run(c.settings, func(t *testing.T) {
			for setting := range strings.FieldsSeq(c.settings) {
				name, value, _ := strings.Cut(setting, "=")
				t.Setenv(name, value)
			}
			export, stop, err := Logs(t.Context(), "pawl", slog.New(slog.DiscardHandler))
			if c.refuse == "" && err != nil || c.refuse != "" && (err == nil || !strings.Contains(err.Error(), c.refuse) ||
				strings.Contains(err.Error(), "secret")) {
				t.Errorf("got error %v, want %q", err, c.refuse)
			}
			if (export != nil) != c.exports {
				t.Errorf("exports: %t, want %t", export != nil, c.exports)
			}
			if err == nil {
				stop()
			}
		})
	}
}

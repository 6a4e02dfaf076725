package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

type collectorKey struct{}

// collector receives the spans that a script's processes export.
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

// ServeHTTP receives an export in OTLP over HTTP.
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

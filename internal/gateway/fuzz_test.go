package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/rest"
)

// Whatever is sent to any path, the response is JSON, is a problem document if the request is refused, and is never an internal error.
func FuzzREST(f *testing.F) {
	g := newGateway(newFake())
	routes := rest.Routes()
	for i := range routes {
		f.Add(uint8(i), "00dc6acf-ac00-7001-8000-000000000001", "",
			`{"type":"a","tasks":[{"type":"a"}],"queues":["q"],"claim_token":"AQEBAAAAAAAAAAc"}`)
	}
	f.Add(uint8(0), "", "", `{"type":"a","payload":{"x":[1,2]},"retry":{"initial":"1s","factor":1e400},"tags":["x"],"headers":{"a":"b"}}`)
	f.Add(uint8(2), "", "queue=a&state=ready,dead&limit=5&cursor=AXQA3GrPrABwAYAAAAAAAAAC&created_after=2000-01-01T00:00:00Z", "")
	f.Add(uint8(6), "", "", `{"queues":{"a":7,"b":3},"max":20,"lease":"30s","types":["x"]}`)
	f.Add(uint8(8), "q", "", `{"settings":{"weights":{"high":1,"normal":2,"low":3},"retention":{"dead":"1h"}},"if_version":1}`)
	f.Fuzz(func(t *testing.T, which uint8, id, query, body string) {
		rt := routes[int(which)%len(routes)]
		path := strings.NewReplacer("{id}", url.PathEscape(id), "{queue}", url.PathEscape(id)).Replace(rt.Path)
		if strings.Contains(body, `"wait"`) || strings.Contains(query, "wait") {
			t.Skip()
		}
		r := &http.Request{Method: rt.Method, URL: &url.URL{Path: path, RawQuery: query}, Header: http.Header{}, Host: "localhost",
			Body: http.NoBody, ContentLength: int64(len(body))}
		if body != "" {
			r = httptest.NewRequest(rt.Method, ours+"/", strings.NewReader(body))
			r.URL = &url.URL{Path: path, RawQuery: query}
		}
		if strings.HasSuffix(rt.Path, "/events") { // it ends only with its caller
			ctx, gone := context.WithCancel(r.Context())
			gone()
			r = r.WithContext(ctx)
		}
		w := httptest.NewRecorder()
		g.Handler().ServeHTTP(w, r)
		if w.Header().Get("Content-Type") == "text/event-stream" {
			return
		}
		if w.Code >= 300 && w.Code < 400 {
			return // the path is not clean
		}
		if w.Code == 500 || !json.Valid(w.Body.Bytes()) {
			t.Fatalf("%s %s?%s %s: %d %s", rt.Method, path, query, body, w.Code, w.Body)
		}
	})
}

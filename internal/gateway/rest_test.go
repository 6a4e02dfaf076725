package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"sort"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/pawlq/pawl/internal/rest"
)

// The REST test scripts are in testdata/rest. Each call is a request line, headers and a body, and the response is shown verbatim. Time
// advances only on wait. Every request that succeeds and every response is checked against openapi.json.
func TestREST(t *testing.T) {
	document() // parsed outside the bubbles
	datadriven.Walk(t, "testdata/rest", func(t *testing.T, path string) {
		synctest.Test(t, func(t *testing.T) {
			s := &restStory{t: t, f: newFake(1)}
			s.g = newGateway(s.f)
			datadriven.RunTest(t, path, s.step)
			s.g.Shutdown(context.Background())
		})
	})
}

// pass lets time pass in the synctest bubble, where time is fake.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait() // what is due at this instant happens before the test goes on
}

type restStory struct {
	t     *testing.T
	f     *fake
	g     *Gateway
	spans *tracetest.SpanRecorder
}

// ended returns the spans that have ended since it was last called, with the trace that they belong to if a call or a
// task named it, and all their contents.
func (s *restStory) ended() string {
	var out strings.Builder
	for _, span := range s.spans.Ended() {
		of := "of its own"
		if span.Parent().IsValid() {
			of = "in " + span.Parent().SpanID().String()
		}
		fmt.Fprintf(&out, "%s %s %s, %s, %s to %s", span.SpanKind(), span.Name(), of, span.Status().Code, span.StartTime().Format("05.000"),
			span.EndTime().Format("05.000"))
		for _, l := range span.Links() {
			fmt.Fprintf(&out, ", to %s", l.SpanContext.SpanID())
		}
		for _, a := range span.Attributes() {
			fmt.Fprintf(&out, "\n  %s=%s", a.Key, a.Value.String())
		}
		if d := span.Status().Description; d != "" {
			fmt.Fprintf(&out, "\n  %s", d)
		}
		out.WriteByte('\n')
	}
	s.spans.Reset()
	return out.String()
}

func (s *restStory) step(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "call":
		return s.call(d.Input)
	case "stats":
		s.g.cfg.Stats = newFakeStats()
		s.g.wire()
		return ""
	case "traced":
		s.spans = tracetest.NewSpanRecorder()
		s.g.tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(s.spans)).Tracer("test")
		s.g.wire()
		return ""
	case "spans":
		return s.ended()
	case "wait":
		dur, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		pass(dur)
		return ""
	case "shards":
		s.f.set(func() {
			s.f.shards = nil
			for _, a := range d.CmdArgs {
				var n uint32
				fmt.Sscan(a.Key, &n)
				s.f.shards = append(s.f.shards, n)
			}
		})
		return ""
	case "home": // queue=shard
		s.f.set(func() {
			for _, a := range d.CmdArgs {
				var n uint32
				fmt.Sscan(a.Vals[0], &n)
				s.f.home[a.Key] = n
			}
		})
		return ""
	case "lever":
		return s.lever(d)
	case "cancel-after":
		input := d.Input // d is used again for the next command
		go func() {
			pass(time.Second)
			s.call(input)
		}()
		return ""
	}
	d.Fatalf(t, "there is no command %q", d.Cmd)
	return ""
}

func (s *restStory) lever(d *datadriven.TestData) string {
	s.f.set(func() {
		switch d.CmdArgs[0].Key {
		case "no-leader":
			s.f.leader = 0
		case "down":
			s.f.down[1] = true
		case "up":
			s.f.down[1] = false
		case "panic":
			s.f.panics = true
		case "calm":
			s.f.panics, s.f.fails = false, nil
		case "bug":
			s.f.fails = fmt.Errorf("secret: disk /dev/sda1")
		case "drain":
			close(s.f.draining)
		default:
			d.Fatalf(s.t, "there is no lever %q", d.CmdArgs[0].Key)
		}
	})
	return ""
}

// call sends a request that is written as in HTTP.
func (s *restStory) call(text string) string {
	head, body, _ := strings.Cut(text, "\n\n")
	lines := strings.Split(head, "\n")
	method, target, _ := strings.Cut(lines[0], " ")
	var headers []string
	for i, l := range lines[1:] {
		if strings.HasPrefix(l, "{") || strings.HasPrefix(l, "[") || !strings.Contains(l, ": ") {
			body = strings.Join(lines[i+1:], "\n")
			break
		}
		headers = append(headers, l)
	}
	r := httptest.NewRequest(method, ours+target, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	w := serveChecked(s.t, s.g.Handler(), r, []byte(body))
	var out strings.Builder
	fmt.Fprintln(&out, w.Code)
	var names []string
	for name := range w.Header() {
		if name != "Content-Length" && name != "Content-Type" && name != "X-Content-Type-Options" {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Fprintf(&out, "%s: %s\n", name, strings.Join(w.Header()[name], ", "))
	}
	out.WriteString(zeros.ReplaceAllStringFunc(w.Body.String(), func(all string) string { return fmt.Sprintf("0 x %d", (len(all)+1)/2) }))
	return out.String()
}

// zeros matches long runs of zeros in a series, which a script only counts.
var zeros = regexp.MustCompile(`\b0(,0){9,}\b`)

// document is openapi.json as parsed by kin-openapi.
var document = sync.OnceValues(func() (*openapi3.T, routers.Router) {
	doc, err := openapi3.NewLoader().LoadFromData(rest.OpenAPI())
	if err != nil {
		panic(err)
	}
	if err := doc.Validate(context.Background(), openapi3.IsOpenAPI31OrLater()); err != nil {
		panic(err)
	}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		panic(err)
	}
	openapi3filter.RegisterBodyDecoder("application/problem+json", openapi3filter.JSONBodyDecoder)
	return doc, router
})

// serveChecked serves a request, and checks the request and its response against openapi.json.
func serveChecked(t testing.TB, h http.Handler, r *http.Request, body []byte) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	_, router := document()
	again := r.Clone(r.Context())
	again.Body = io.NopCloser(bytes.NewReader(body))
	again.ContentLength = int64(len(body))
	h.ServeHTTP(w, r)
	rt, params, err := router.FindRoute(again)
	if err != nil {
		if w.Code != http.StatusNotFound && w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s %s: status %d, but the path is not in openapi.json: %v", r.Method, r.URL, w.Code, err)
		}
		return w
	}
	in := &openapi3filter.RequestValidationInput{Request: again, PathParams: params, Route: rt,
		Options: &openapi3filter.Options{IncludeResponseStatus: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}}
	if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil && w.Code < 400 {
		if !strings.Contains(w.Body.String(), `"error"`) { // a batch refuses bad items individually
			t.Errorf("%s %s %s: was accepted, but does not match openapi.json: %v", r.Method, r.URL, body, err)
		}
	}
	out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: w.Code, Header: w.Header(),
		Options: &openapi3filter.Options{IncludeResponseStatus: true}}
	out.SetBodyBytes(w.Body.Bytes())
	if err := openapi3filter.ValidateResponse(context.Background(), out); err != nil {
		t.Errorf("%s %s %s: the response %s\ndoes not match openapi.json: %v", r.Method, r.URL, body, w.Body, err)
	}
	return w
}

// A string with an unpaired surrogate is not valid text, because two different ones would be decoded to the same string.
func TestHalvesOfSurrogatePairsAreRefused(t *testing.T) {
	f := newFake()
	g := newGateway(f)
	defer g.Shutdown(context.Background())
	post := func(path, body string) (int, string) {
		w := httptest.NewRecorder()
		g.Handler().ServeHTTP(w, httptest.NewRequest("POST", ours+path, strings.NewReader(body)))
		return w.Code, w.Body.String()
	}
	for _, half := range []string{`\ud800`, `\uDFFF`, `a\udbffb`, `\ud83d\ud83d\ude00`, `\ude00\ud83d`, `\ud83d\n`, `\ud83d\\ude00`,
		`\\\ud800`, `\ud83d\u0041`} {
		for where, body := range map[string]string{
			"a key":               `{"type":"a","idempotency_key":"%s"}`,
			"a header's value":    `{"type":"a","headers":{"h":"%s"}}`,
			"a header's name":     `{"type":"a","headers":{"%s":"x"}}`,
			"a tag":               `{"type":"a","tags":["x","%s"]}`,
			"a task that follows": `{"type":"a","then":[{"type":"b","headers":{"h":"%s"}}]}`,
		} {
			body = fmt.Sprintf(body, half)
			if code, said := post("/api/v1/tasks", body); code != 400 || !strings.Contains(said, `"code":"invalid_argument"`) {
				t.Errorf("%s in %s: %d %s, want an invalid argument", where, body, code, said)
			}
			if code, said := post("/api/v1/tasks/batch", `{"tasks":[`+body+`]}`); !strings.Contains(said, `"code":"invalid_argument"`) {
				t.Errorf("%s in %s in a batch: %d %s, want an invalid argument", where, body, code, said)
			}
		}
	}
	if n := len(f.tasks); n != 0 {
		t.Errorf("%d tasks were enqueued, want none", n)
	}
	for text, want := range map[string]string{`\ud83d\ude00`: "😀", `\uD83D\uDE00\ud83d\ude00`: "😀😀", `\\ud800`: `\ud800`,
		`\\\\ud800`: `\\ud800`, `\ufffd`: "\ufffd", `\ue000\ud7ff`: "\ue000\ud7ff"} {
		if code, said := post("/api/v1/tasks", `{"type":"a","headers":{"h":"`+text+`"}}`); code != 202 {
			t.Errorf("%s: %d %s", text, code, said)
			continue
		}
		found := false
		for _, task := range f.tasks {
			found = found || task.view.Headers["h"] == want
		}
		if !found {
			t.Errorf("%s was not decoded to %q", text, want)
		}
	}
}

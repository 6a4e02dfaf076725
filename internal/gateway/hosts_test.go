package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/gateway/listen"
	"github.com/pawlq/pawl/internal/rest"
)

// ours is the URL by which tests address a gateway that requires no tokens.
const ours = "http://localhost"

// stray returns a request as a page sends it whose host name resolves to this address.
func stray(method, path, host string) *http.Request {
	r := httptest.NewRequest(method, path, nil)
	if method != "GET" {
		r = httptest.NewRequest(method, path, strings.NewReader(`{"type":"x","queue":"stolen"}`))
	}
	r.Host = host
	r.Header.Set("Origin", "http://"+host)
	return r
}

// While no token is required, a page under another host name gets nothing but an error, because its requests look like those of Pawl's own
// pages.
func TestOtherNamesAreMisdirected(t *testing.T) {
	f := newFake()
	pages := 0
	f.pages = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { pages++ })
	g := newGateway(f)
	paths := [][2]string{{"GET", "/"}, {"POST", "/queues/mail/pause"}, {"GET", "/static/pawl.js"}, {"GET", "/a//b"}, {"GET", "/metrics/"},
		{"DELETE", "/healthz"}, {"GET", "/api/v1/nothing"}}
	for _, rt := range rest.Routes() {
		paths = append(paths, [2]string{rt.Method, strings.NewReplacer("{", "", "}", "").Replace(rt.Path)})
	}
	ctx, gone := context.WithCancel(t.Context())
	gone() // otherwise a stream that is served would not end
	for _, p := range paths {
		w := httptest.NewRecorder()
		g.Handler().ServeHTTP(w, stray(p[0], p[1], "evil.example:7295").WithContext(ctx))
		var problem struct{ Code, Field, Detail string }
		if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil || w.Code != http.StatusMisdirectedRequest ||
			problem.Code != "invalid_argument" || problem.Field != "host" {
			t.Errorf("%s %s: %d %s, want misdirected request", p[0], p[1], w.Code, w.Body)
		}
		for _, want := range []string{`"evil.example:7295"`, "IP addresses", "localhost", "--listen", "--advertise", "--allowed-hosts"} {
			if !strings.Contains(problem.Detail, want) {
				t.Errorf("%s %s: the error does not mention %s: %s", p[0], p[1], want, problem.Detail)
			}
		}
		if h := w.Header(); h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s: headers = %v", p[0], p[1], h)
		}
	}
	if pages != 0 || len(f.queues) != 0 {
		t.Errorf("%d pages were served, and the queues are %v", pages, f.queues)
	}
	w := httptest.NewRecorder()
	g.Handler().ServeHTTP(w, stray("POST", "/api/v1/tasks", "localhost:7295"))
	if w.Code != http.StatusAccepted {
		t.Errorf("request with the server's own name: %d %s", w.Code, w.Body)
	}
}

// Whether calls need a token may change at any time. While they do, any host name is accepted.
func TestHostCheckFollowsAuthentication(t *testing.T) {
	authenticator := auth.NewAuthenticator(auth.Config{})
	hosts, err := listen.ParseHosts([]string{"pawl.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	f := newFake()
	f.auth = authenticator
	cfg := f.config()
	cfg.Hosts = hosts
	g := New(cfg)
	is := func(when string, host string, want int) {
		t.Helper()
		w := httptest.NewRecorder()
		if g.Handler().ServeHTTP(w, stray("GET", "/api/v1/limits", host)); w.Code != want {
			t.Errorf("%s, host %s: status %d, want %d: %s", when, host, w.Code, want, w.Body)
		}
	}
	is("nothing heard yet", "evil.example", http.StatusServiceUnavailable)
	for range 2 {
		authenticator.Replace(auth.Access{})
		authenticator.Refreshed(time.Now())
		is("no token wanted", "evil.example", http.StatusMisdirectedRequest)
		is("no token wanted", "PAWL.example.com:80", http.StatusOK)
		authenticator.Replace(auth.Access{Required: true})
		is("tokens wanted", "evil.example", http.StatusUnauthorized)
		is("tokens wanted", "localhost", http.StatusUnauthorized)
	}
}

// The host check as seen by clients, after what net/http does to requests.
func TestHostNamesOverTCP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := serve(t, newFake())
		for request, want := range map[string]string{
			"GET /healthz HTTP/1.1\r\nHost: evil.example\r\n":                                           "421 Misdirected Request",
			"GET /healthz HTTP/1.1\r\nHost: LOCALHOST.:7295\r\n":                                        "200 OK",
			"GET /healthz HTTP/1.1\r\nHost: [::1]:7295\r\n":                                             "200 OK",
			"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Forwarded-Host: evil.example\r\n":            "200 OK",
			"GET /healthz HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: localhost\r\n":            "421 Misdirected Request",
			"GET /healthz HTTP/1.1\r\n":                                                                 "400 Bad Request",
			"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n":                        "400 Bad Request",
			"GET /healthz HTTP/1.0\r\n":                                                                 "200 OK",
			"GET /healthz HTTP/1.0\r\nHost: evil.example\r\n":                                           "421 Misdirected Request",
			"GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost\r\n":                           "421 Misdirected Request",
			"GET http://localhost:7295/healthz HTTP/1.1\r\nHost: localhost:7295\r\n":                    "200 OK",
			"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n":                                  "421 Misdirected Request",
			"GET /live HTTP/1.1\r\nHost: evil.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n": "421 Misdirected Request",
			"POST /api/v1/tasks HTTP/1.1\r\nHost: evil.example\r\n" +
				"Origin: http://evil.example\r\nContent-Length: 0\r\n": "421 Misdirected Request",
		} {
			conn, err := l.dial(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			if got := answerTo(t, conn, request+"Connection: close\r\n\r\n"); !strings.Contains(got, " "+want) {
				t.Errorf("%s\ngot %q, want %s", request, got, want)
			}
		}
	})
}

// answerTo sends a request and returns everything that comes back.
func answerTo(t *testing.T, conn net.Conn, request string) string {
	t.Helper()
	go func() { _, _ = io.WriteString(conn, request) }()
	defer conn.Close()
	got, err := io.ReadAll(bufio.NewReader(conn))
	if err != nil {
		t.Fatalf("%s: %v", request, err)
	}
	return string(got)
}

// A page can choose the method of its requests, but can't send the rest of gRPC's connection preface.
func TestPagesSpeakNoGRPC(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := serve(t, newFake())
		for _, path := range []string{"/", "/*", "/pawl.v1.ProducerService/Enqueue"} {
			conn, err := l.dial(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			if got := answerTo(t, conn, "PRI "+path+" HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://evil.example\r\nContent-Length: "+
				"24\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); strings.Contains(got, "HTTP/") {
				t.Errorf("PRI %s got %q, want no HTTP response", path, got)
			}
		}
	})
}

// Refusals are logged, at most once a second, for operators who look for the reason, because a probe or a scrape does not show it.
func TestMisdirectedRequestsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		f := newFake()
		cfg := f.config()
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		g := New(cfg)
		for range 5 {
			g.Handler().ServeHTTP(httptest.NewRecorder(), stray("GET", "/metrics", "evil\nlevel=ERROR"))
		}
		pass(time.Second)
		g.Handler().ServeHTTP(httptest.NewRecorder(), stray("GET", "/metrics", "pawl:7295"))
		if n := strings.Count(log.String(), "\n"); n != 2 || !strings.Contains(log.String(), "host=pawl:7295") ||
			!strings.Contains(log.String(),
				"others=4") || !strings.Contains(log.String(), "--allowed-hosts") {
			t.Errorf("log has %d lines, want 2:\n%s", n, log.String())
		}
	})
}

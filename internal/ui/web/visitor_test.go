package web

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pawlq/pawl/admin"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/ui/visitor"
)

// A visitor without a valid token is asked for one, and comes back to the page.
func TestLogin(t *testing.T) {
	s := newSite(t)
	s.api.set(func(a *api) {
		a.strict = true
		a.me[""] = &pawlv1.WhoAmIResponse{Namespace: "default", TokenRequired: true, Name: "ci", Roles: []string{"observe"}}
	})
	leads(t, "a page", s.get("/queues?a=b"), 303, "/base/login?next=%2Fqueues%3Fa%3Db")
	leads(t, "a page by a bad token", s.get("/queues", cookie, sessionOf("pawl_bad")), 303, "/base/login?next=%2Fqueues")
	leads(t, "a page of a namespace", s.get("/in/team/queues"), 303, "/base/in/team/login?next=%2Fqueues")
	leads(t, "a refresh", s.get("/raw", script, "true"), 200, "")
	expect(t, "a form", s.post("/act", nil), 401, "Your session has ended", `class="bare"`)
	expect(t, "a page by a good token", s.get("/queues", cookie, good), 200, "Log out", "ci")

	form := s.get("/login?next=%2Fqueues")
	if expect(t, "the login", form, 200, "Log in with an access token", `action="/base/login?next=%2Fqueues"`,
		`class="bare"`); strings.Contains(form.Body.String(), `role="search"`) {
		t.Error("the login has a search")
	}
	if part := s.get("/login", script, "true"); part.Code != 200 || strings.Contains(part.Body.String(), "<!doctype") {
		t.Errorf("the login on a page: status %d", part.Code)
	}
	for _, c := range []struct {
		token string
		code  int
		to    string
		words string
	}{
		{"pawl_good", 303, "/base/login?kept=yes&next=%2Fqueues", ""},
		{" pawl_good ", 303, "/base/login?kept=yes&next=%2Fqueues", ""},
		{"pawl_bad", 422, "", "unknown token"},
		{"", 422, "", "is not a token"},
		{"a b", 422, "", "is not a token"},
	} {
		w := s.post("/login?next=%2Fqueues", url.Values{"token": {c.token}})
		leads(t, fmt.Sprintf("the token %q", c.token), w, c.code, c.to)
		expect(t, fmt.Sprintf("the token %q", c.token), w, c.code, c.words)
		if set := strings.HasPrefix(w.Header().Get("Set-Cookie"), "__Host-pawl="); set != (c.code == 303) {
			t.Errorf("the token %q: the session is %q", c.token, w.Header().Get("Set-Cookie"))
		}
		if c.code == 422 && !strings.Contains(w.Body.String(), `aria-invalid="true"`) {
			t.Errorf("the token %q: the error is not at the field: %s", c.token, w.Body)
		}
	}
	leads(t, "the token of another site's link", s.post("/login?next=%2F%2Fevil.example", url.Values{"token": {"pawl_good"}}), 303,
		"/base/login?kept=yes&next=%2F")
	expect(t, "a login that is no form", s.send(http.MethodPost, "/login", "token=pawl_good", "Sec-Fetch-Site", "same-origin"), 422,
		"urlencoded")
	leads(t, "a session that was kept", s.get("/login?kept=yes&next=%2Fqueues", cookie, good), 303, "/base/queues")
	leads(t, "and leads astray", s.get("/login?kept=yes&next=%2F%2Fevil.example", cookie, good), 303, "/base/")
	expect(t, "a session that was not kept", s.get("/login?kept=yes&next=%2Fqueues"), 200, "the browser did not keep the session",
		`action="/base/login?next=%2Fqueues"`)
	out := s.post("/logout", nil, cookie, good)
	if leads(t, "a logout", out, 303, "/base/login"); !strings.Contains(out.Header().Get("Set-Cookie"), "Max-Age=0") {
		t.Errorf("a logout leaves %q", out.Header().Get("Set-Cookie"))
	}
	s.deaf = errors.New("no leader")
	alone := s.post("/logout", nil, cookie, good)
	if leads(t, "a logout without a leader", alone, 303, "/base/login"); !strings.Contains(strings.Join(alone.Header().Values("Set-Cookie"),
		" "), "in+this+browser+only") {
		t.Errorf("a logout without a leader says %q", alone.Header().Values("Set-Cookie"))
	}
	s.deaf = nil
	s.api.set(func(a *api) { a.refuses = status.Error(codes.PermissionDenied, "not from here") })
	expect(t, "a token that is refused for another reason", s.post("/login", url.Values{"token": {"pawl_good"}}), 422, "not from here",
		`aria-invalid="true"`)

	r := httptest.NewRequest(http.MethodGet, "/queues", nil)
	r.Header.Set(script, "true")
	r.Header.Set("HX-Current-URL", "http://example.com/base/tasks?q=a")
	w := httptest.NewRecorder()
	s.newRequest(w, r).toLogin()
	leads(t, "a refresh without a session", w, 204, "/base/login?next=%2Ftasks%3Fq%3Da")
	if w.Header().Get("Set-Cookie") != "" {
		t.Error("a refresh says that nothing was changed")
	}
}

// Logging out ends the session also if the browser is closed at once. A login ends the session that the browser had.
func TestSessionsThatAreLeft(t *testing.T) {
	s := newSite(t)
	s.api.set(func(a *api) {
		a.me[""] = &pawlv1.WhoAmIResponse{Namespace: "default", TokenRequired: true, Name: "ci", Roles: []string{"observe"}}
	})
	closed, close := context.WithCancel(t.Context())
	close()
	r := httptest.NewRequestWithContext(closed, http.MethodPost, "/logout", nil)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set(cookie, good)
	if s.ServeHTTP(httptest.NewRecorder(), r); s.ended != 1 {
		t.Errorf("a logout in a browser that was closed ends %d sessions, want 1", s.ended)
	}
	for _, c := range []struct {
		what, token, had string
		ended            int
	}{{"a login in a session", "pawl_good", sessionOf("pawl_other"), 1}, {"one without", "pawl_good", "", 0}, {"one that fails", "a b",
		sessionOf("pawl_other"), 0}} {
		s.ended = 0
		w := s.post("/login", url.Values{"token": {c.token}}, cookie, c.had)
		set := w.Result().Cookies()
		if begun := len(set) > 0 && set[len(set)-1].Name == "__Host-pawl" && set[len(set)-1].MaxAge == 0; s.ended != c.ended ||
			begun != (c.token == "pawl_good") {
			t.Errorf("%s ends %d sessions, want %d; it sets %v", c.what, s.ended, c.ended, set)
		}
	}
	s.api.set(func(a *api) { a.me[""].TokenRequired = false })
	w := s.post("/login?next=%2Fqueues", url.Values{"token": {"pawl_good"}})
	if leads(t, "a login where no token is required", w, 303, "/base/queues"); w.Header().Get("Set-Cookie") != "" {
		t.Errorf("a login where no token is required begins a session: %v", w.Header())
	}
}

// Whoever is not logged in can't fill the log of a node that does not know the tokens.
func TestStrangersAreNotLogged(t *testing.T) {
	var log strings.Builder
	s := New(Config{Logger: slog.New(slog.NewTextHandler(&log, nil)), Sessions: visitor.NewSessions(func(auth.SessionID) (auth.SessionKey,
		error) {
		return auth.SessionKey{}, errors.New("no tokens yet")
	}, nil, 0)})
	r := httptest.NewRequest(http.MethodPost, "/logout", nil)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set(cookie, sessionOf("made_up"))
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if w.Code != http.StatusSeeOther || log.Len() > 0 {
		t.Errorf("status %d, in the log: %s", w.Code, log.String())
	}
}

// A session that a person uses is renewed. One that only a page uses, by refreshing itself, is not, and ends.
func TestSessionsAreRenewedByPeople(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		session := sessionOf("pawl_good")
		time.Sleep(10 * time.Minute)
		for what, c := range map[string]struct {
			w       *httptest.ResponseRecorder
			renewed bool
		}{
			"a page":                    {s.get("/queues", cookie, session), true},
			"a page of a namespace":     {s.get("/in/team/queues", cookie, session), true},
			"a form on top of the page": {s.get("/act", cookie, session, script, "true", "HX-Target", "dialog"), true},
			"a form that is sent":       {s.post("/act", nil, cookie, session), true},
			"one sent by a script":      {s.post("/act", nil, cookie, session, script, "true"), true},
			"a refresh":                 {s.get("/queues", cookie, session, script, "true", "HX-Target", "live"), false},
			"what a script asks for":    {s.get("/queues", cookie, session, script, "true"), false},
			"a file":                    {s.get("/static/app.js", cookie, session), false},
			"a form of another site":    {s.send(http.MethodPost, "/act", "", cookie, session, "Sec-Fetch-Site", "cross-site"), false},
			"a page without a session":  {s.get("/queues"), false},
		} {
			set := strings.Contains(strings.Join(c.w.Header().Values("Set-Cookie"), " "), "__Host-pawl=")
			if set != c.renewed {
				t.Errorf("%s: renewed %v, want %v", what, set, c.renewed)
			}
		}
		s.api.set(func(a *api) { a.strict = true })
		time.Sleep(visitor.DefaultIdle - 10*time.Minute - time.Second)
		expect(t, "a refresh in time", s.get("/queues", cookie, session, script, "true"), 200)
		time.Sleep(time.Second)
		leads(t, "a page too late", s.get("/queues", cookie, session), 303, "/base/login?next=%2Fqueues")
	})
}

// A node that does not know the tokens yet does not send visitors to the login.
func TestSessionsOfUnknownTokensAreKept(t *testing.T) {
	s := newSite(t)
	s.deaf = errors.New("this node has not heard from its cluster")
	expect(t, "a page", s.get("/queues", cookie, good), 503, "has not heard from its cluster")
	expect(t, "a form", s.post("/act", nil, cookie, good), 503, "has not heard from its cluster")
	expect(t, "a login that was kept", s.get("/login?kept=yes", cookie, good), 200, "has not heard from its cluster")
	expect(t, "without a session", s.get("/queues"), 200)
}

// A command line or a call is complete: it names the server, the namespace and the token, each only if it must.
func TestCaller(t *testing.T) {
	token := &admin.Identity{TokenRequired: true, Namespace: "default"}
	open := &admin.Identity{Namespace: "default"}
	in := func(me admin.Identity, ns string, all bool) *admin.Identity {
		me.Namespace, me.AllNamespaces = ns, all
		return &me
	}
	const bearer = ` -H "Authorization: Bearer $PAWL_TOKEN"`
	for _, c := range []struct {
		what, host string
		me         *admin.Identity
		tls, proxy bool
		want       Caller
	}{
		{"here", "localhost:7295", open, false, false, Caller{"curl", "http://localhost:7295/base", nil}},
		{"by address", "127.0.0.1:7295", open, false, false, Caller{"curl", "http://127.0.0.1:7295/base", nil}},
		{"by IPv6", "[::1]:7295", open, false, false, Caller{"curl", "http://[::1]:7295/base", nil}},
		{"another port", "localhost:80", open, false, false, Caller{"curl", "http://localhost:80/base", []string{"--server=localhost:80"}}},
		{"no port", "localhost", open, false, false, Caller{"curl", "http://localhost/base", []string{"--server=localhost"}}},
		{"another host", "pawl.example:7295", open, false, false, Caller{"curl", "http://pawl.example:7295/base",
			[]string{"--server=pawl.example:7295"}}},
		{"another address", "10.0.0.1:7295", open, false, false, Caller{"curl", "http://10.0.0.1:7295/base",
			[]string{"--server=10.0.0.1:7295"}}},
		{"TLS", "localhost:7295", open, true, false, Caller{"curl", "https://localhost:7295/base",
			[]string{"--server=https://localhost:7295"}}},
		{"a proxy with TLS", "pawl.example", open, false, true, Caller{"curl", "https://pawl.example/base",
			[]string{"--server=https://pawl.example"}}},
		{"with a token", "localhost:7295", token, false, false, Caller{"curl" + bearer, "http://localhost:7295/base", nil}},
		{"with a certificate", "localhost:7295", &admin.Identity{TokenRequired: true, Certificate: "dns:x", Namespace: "default"}, false,
			false, Caller{"curl", "http://localhost:7295/base", nil}},
		{"of one namespace", "localhost:7295", in(*token, "team", false), false, false, Caller{"curl" + bearer,
			"http://localhost:7295/base", nil}},
		{"of all namespaces, in one", "localhost:7295", in(*token, "team", true), false, false,
			Caller{"curl" + bearer + " -H 'Pawl-Namespace: team'", "http://localhost:7295/base", []string{"--namespace=team"}}},
		{"without tokens, in a namespace", "localhost:7295", in(*open, "team", false), false, false,
			Caller{"curl -H 'Pawl-Namespace: team'",
				"http://localhost:7295/base", []string{"--namespace=team"}}},
		{"of all namespaces, in the default one", "localhost:7295", in(*token, "default", true), false, false, Caller{"curl" + bearer,
			"http://localhost:7295/base", nil}},
		{"unknown", "localhost:7295", nil, false, false, Caller{"curl", "http://localhost:7295/base", nil}},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if r.Host = c.host; c.tls {
			r.TLS = &tls.ConnectionState{}
		}
		if c.proxy {
			r.Header.Set("X-Forwarded-Proto", "https")
		}
		req := &Request{Links: Links{HTTP: r}, server: &Server{base: "/base"}, me: c.me}
		got := req.Caller()
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
		facts := req.GettingStarted()
		if login := strings.Contains(c.want.Curl, "PAWL_TOKEN"); len(facts) != 3 && !login || len(facts) != 4 && login ||
			login != strings.HasPrefix(facts[0].Value, "read -rs PAWL_TOKEN") {
			t.Errorf("%s: it begins with %+v", c.what, facts)
		}
		if last := facts[len(facts)-1].Value; !strings.HasPrefix(last, c.want.Curl+" -d ") || !strings.HasSuffix(facts[len(facts)-2].Value,
			strings.Join(c.want.CLI, " ")) {
			t.Errorf("%s: it begins with %+v", c.what, facts)
		}
	}
	c := Caller{Curl: "curl", URL: "http://h", CLI: []string{"--server=h"}}
	if got, err := c.Enqueue("a", "", json.RawMessage(`{"it's":1}`)); err != nil ||
		got != `curl -d '{"type":"a","payload":{"it'\''s":1}}' http://h/api/v1/tasks` {
		t.Errorf("a call is %s, %v", got, err)
	}
	if _, err := c.Enqueue("a", "", json.RawMessage(`{`)); err == nil {
		t.Error("a broken payload can be enqueued")
	}
	if got := c.Command("task show", []string{"a b"}); got != "pawl task show 'a b' --server=h" {
		t.Errorf("a command is %q", got)
	}
}

// The menu has what the API lets the visitor see, under the headings of its sections.
func TestMenu(t *testing.T) {
	with := func(role admin.Role, all bool, queues ...string) *admin.Identity {
		return &admin.Identity{TokenRequired: true, Roles: []admin.Role{role}, AllNamespaces: all, Queues: queues}
	}
	const some, space = "/queues /tasks /types /dead /poison /schedules /groups Activity:/workers /operations ",
		"/ /queues /tasks /types /dead /poison /schedules /groups Activity:/workers /operations "
	for _, c := range []struct {
		what string
		me   *admin.Identity
		want string
	}{
		{"unknown", nil, space + "/audit Administration:/cluster /webhooks /namespaces /tokens /settings"},
		{"without tokens", &admin.Identity{}, space + "/audit Administration:/cluster /webhooks /namespaces /tokens /settings"},
		{"of some queues", with("observe", false, "mail*"), some + "Administration:/settings"},
		{"of some queues of all namespaces", with("observe", true, "mail*"), some + "Administration:/settings"},
		{"of a namespace", with("observe", false), space + "Administration:/webhooks /settings"},
		{"of the cluster", with("observe", true), space + "Administration:/cluster /webhooks /settings"},
		{"a producer", with("produce", true), "Administration:/settings"},
	} {
		req := &Request{me: c.me, nav: "/settings"}
		var got []string
		for _, e := range req.menu() {
			path := e.Path
			if e.Heading != "" {
				path = e.Heading + ":" + path
			}
			if got = append(got, path); e.Here != (e.Path == "/settings") {
				t.Errorf("%s: %s is here: %v", c.what, e.Path, e.Here)
			}
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%s: %s\nwant %s", c.what, got, c.want)
		}
	}
}

// request returns a request that a page of the site could get.
func (s *site) request(t *testing.T, now time.Time, token string) *Request {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/queues", nil)
	if token != "" {
		r.Header.Set(cookie, sessionOf(token))
	}
	var req *Request
	s.sessions.Open(http.HandlerFunc(func(w http.ResponseWriter, opened *http.Request) {
		r, req = opened,
			s.newRequest(w, opened)
	})).ServeHTTP(httptest.NewRecorder(), r)
	client, leave, err := s.clients.Client(visitor.Of(r))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(leave)
	req.Ctx, req.Client, req.Now = t.Context(), client, now
	return req
}

// The counts of the menu are read at most every few seconds for all visitors of a token, and keep their last value if they can't be read.
func TestCounts(t *testing.T) {
	s := newSite(t)
	s.api.set(func(a *api) {
		a.dead, a.running = 12_345, 2
		a.worries = []*pawlv1.Attention{{Severity: "warning"}, {Severity: "critical", More: 3}}
	})
	at := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	show := func(at time.Time, token string) string {
		t.Helper()
		req := s.request(t, at, token)
		s.counts.setHeader(req)
		return req.Writer.Header().Get(countsHeader)
	}
	if got, want := show(at, ""), "/=5! /dead=12.3k /operations=2 /poison=1"; got != want {
		t.Errorf("counted %q, want %q", got, want)
	}
	s.api.set(func(a *api) { a.dead, a.running, a.worries = 7, 0, []*pawlv1.Attention{{Severity: "warning"}} })
	if got, want := show(at.Add(countsFor-1), ""), "/=5! /dead=12.3k /operations=2 /poison=1"; got != want || s.api.called("stats") != 1 {
		t.Errorf("counted again %q after %d calls", got, s.api.called("stats"))
	}
	if got, want := show(at.Add(countsFor-1), "pawl_other"), "/=1 /dead=7 /operations=0 /poison=1"; got != want ||
		s.api.called("stats") != 2 {
		t.Errorf("another visitor has %q after %d calls", got, s.api.called("stats"))
	}
	if got, want := show(at.Add(countsFor), ""), "/=1 /dead=7 /operations=0 /poison=1"; got != want {
		t.Errorf("counted %q, want %q", got, want)
	}
	s.api.set(func(a *api) { a.dead, a.running, a.statErr = 8, 1, status.Error(codes.PermissionDenied, "no") })
	if got, want := show(at.Add(2*countsFor), ""), "/=1 /dead=7 /operations=1 /poison=1"; got != want {
		t.Errorf("with one that can't be read: %q, want %q", got, want)
	}
	s.api.set(func(a *api) { a.running, a.opErr = 5, a.statErr })
	if got, want := show(at.Add(3*countsFor), ""), "/=1 /dead=7 /operations=1 /poison=1"; got != want {
		t.Errorf("with none that can be read: %q, want %q", got, want)
	}
	req := s.request(t, at.Add(3*countsFor), "")
	req.nav = "/dead"
	for _, e := range s.counts.addTo(req.menu(), req) {
		n, counted := map[string]int64{"/": 1, "/dead": 7, "/poison": 1, "/operations": 1}[e.Path]
		if e.N != n || e.Counted != counted || (e.Counts != "") != counted || e.Urgent {
			t.Errorf("%s has %+v", e.Path, e)
		}
	}
	req.left = true
	if n, _ := s.counts.menu(req); n != nil {
		t.Errorf("outside the namespace there are %v", n)
	}
	req.left, req.Client = false, nil
	if n, _ := s.counts.menu(req); n != nil {
		t.Errorf("without a client there are %v", n)
	}
}

// Counts of many visitors are kept, and not of more.
func TestCountsAreBounded(t *testing.T) {
	var c counts
	first := c.of(countsKey{token: "0"})
	for i := range maxCounts {
		if c.of(countsKey{token: fmt.Sprint(i)}); i < maxCounts && c.of(countsKey{token: "0"}) != first {
			t.Fatalf("of %d, the first is forgotten", i+1)
		}
	}
	if c.of(countsKey{token: "more"}); len(c.all) != 1 {
		t.Errorf("%d are kept", len(c.all))
	}
}

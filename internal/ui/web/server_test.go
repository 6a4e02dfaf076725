package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/visitor"
	"github.com/pawlq/pawl/pawltype"
)

// api is the API as far as this package calls it. Its fields say what it answers.
type api struct {
	pawlv1.UnimplementedAccessServiceServer
	pawlv1.UnimplementedStatsServiceServer
	pawlv1.UnimplementedOperationServiceServer
	pawlv1.UnimplementedClusterServiceServer

	mu      sync.Mutex
	me      map[string]*pawlv1.WhoAmIResponse // by namespace; nil: permission_denied
	refuses error                             // of WhoAmI
	strict  bool                              // it wants the token "pawl_good"
	spaces  int                               // number of namespaces
	dead    int64
	running int // operations
	worries []*pawlv1.Attention
	statErr error
	opErr   error
	calls   map[string]int
}

func (a *api) count(call string) {
	if a.calls == nil {
		a.calls = map[string]int{}
	}
	a.calls[call]++
}

func (a *api) WhoAmI(ctx context.Context, _ *pawlv1.WhoAmIRequest) (*pawlv1.WhoAmIResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count("me")
	if a.refuses != nil {
		return nil, a.refuses
	}
	head, _ := metadata.FromIncomingContext(ctx)
	if a.strict && strings.Join(head.Get("authorization"), "") != "Bearer pawl_good" {
		return nil, status.Error(codes.Unauthenticated, "unauthenticated: unknown token")
	}
	me := a.me[strings.Join(head.Get("pawl-namespace"), "")]
	if me == nil {
		return nil, status.Error(codes.PermissionDenied, "no such namespace for you")
	}
	return me, nil
}

func (a *api) ListNamespaces(context.Context, *pawlv1.ListNamespacesRequest) (*pawlv1.ListNamespacesResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := &pawlv1.ListNamespacesResponse{}
	for i := range a.spaces {
		out.Items = append(out.Items, &pawlv1.Namespace{Name: fmt.Sprint("ns", i)})
	}
	return out, nil
}

func (a *api) GetStats(context.Context, *pawlv1.GetStatsRequest) (*pawlv1.GetStatsResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count("stats")
	return &pawlv1.GetStatsResponse{Stats: &pawlv1.Stats{}, Queues: &pawlv1.QueueTotals{Dead: a.dead, Poisoned: 1}, Attention: a.worries},
		a.statErr
}

func (a *api) ListOperations(context.Context, *pawlv1.ListOperationsRequest) (*pawlv1.ListOperationsResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := &pawlv1.ListOperationsResponse{Items: []*pawlv1.Operation{{State: pawlv1.OperationState_OPERATION_STATE_DONE}}}
	for range a.running {
		out.Items = append(out.Items, &pawlv1.Operation{State: pawlv1.OperationState_OPERATION_STATE_RUNNING})
	}
	return out, a.opErr
}

func (a *api) GetCluster(context.Context, *pawlv1.GetClusterRequest) (*pawlv1.GetClusterResponse, error) {
	return &pawlv1.GetClusterResponse{Settings: &pawlv1.ClusterSettings{}, Problems: []string{"shard 7 has no leader"}}, nil
}

// set changes what the API answers.
func (a *api) set(change func(a *api)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(a)
}

func (a *api) called(call string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.calls[call]
}

// anyone is a visitor of a server without tokens.
func anyone(ns string) *pawlv1.WhoAmIResponse {
	return &pawlv1.WhoAmIResponse{Namespace: ns, AllNamespaces: true}
}

// site is a server of some pages below /base, over an API that a test controls.
type site struct {
	*Server
	api *api
	act func(*Request) (Done, error) // of /act
	// deaf is why no session can be opened; nil: they can.
	deaf  error
	ended int // sessions
}

// pages are the site's pages: /queues is one, /act an action, /raw neither.
func (s *site) pages() Set {
	return Set{
		Pages: []Page{
			{Path: "/queues", Template: "list", Nav: "/queues", Show: func(req *Request) (*Screen, error) {
				switch req.Query("fail") {
				case "odd":
					return nil, errors.New("odd")
				case "unavailable":
					return nil, &pawltype.Error{Code: pawltype.ErrUnavailable, Message: "no leader"}
				case "template":
					return &Screen{Title: "Queues", Data: 7}, nil
				case "done":
					req.Redirect("/elsewhere")
					return nil, nil
				}
				if req.Query("lacks") != "" {
					req.Lacks([]pawltype.Missing{{Node: "n<3", Reason: "did not answer in time"}})
					req.Lacks([]pawltype.Missing{{Shard: 4, Reason: "has no leader"}, {Node: "n<3", Reason: "is away"}})
				}
				return &Screen{Title: "Queues", Data: map[string]any{"Text": strings.Repeat("z", 10*len(req.Query("long"))),
					"Name": req.Query("name")}}, nil
			}},
			{Path: "/{$}", Template: "list", Nav: "/", Show: func(*Request) (*Screen, error) {
				return nil, &pawltype.Error{Code: pawltype.ErrPermissionDenied, Message: "not for you"}
			}},
			{Path: "/watched", Template: "list", Nav: "/tasks", Show: func(*Request) (*Screen, error) {
				return &Screen{Title: "Tasks", Data: map[string]any{}, Watch: &Watch{Queue: "mail"}}, nil
			}},
		},
		Actions: []Action{{Path: "/act", Nav: "/queues", Form: func(req *Request) (*form.Form, error) {
			if req.Query("noform") != "" {
				return nil, &pawltype.Error{Code: pawltype.ErrUnavailable, Message: "no leader"}
			}
			return &form.Form{Title: "Pause", Button: "Pause it", Fields: []form.Field{{Name: "reason", Label: "Reason", Kind: "text"}}},
				nil
		}, Do: func(req *Request) (Done, error) { return s.act(req) }}},
		Raw: []Raw{{Path: "/raw", Serve: func(req *Request) error { _, err := io.WriteString(req.Writer, "raw"); return err }}},
		Templates: fstest.MapFS{"templates/list.html": {Data: []byte(`{{define "head"}}<h1>List</h1>{{end}}{{define "live"}}<p ` +
			`class="list">{{.Text}}{{.Name}} <a href="{{url "queues"}}">all</a></p>{{end}}`)}},
	}
}

func newSite(t *testing.T) *site {
	t.Helper()
	a := &api{me: map[string]*pawlv1.WhoAmIResponse{"": anyone("default"), "default": anyone("default"), "team": anyone("team")}, spaces: 1}
	pipe := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	pawlv1.RegisterAccessServiceServer(server, a)
	pawlv1.RegisterStatsServiceServer(server, a)
	pawlv1.RegisterOperationServiceServer(server, a)
	pawlv1.RegisterClusterServiceServer(server, a)
	served := make(chan error, 1)
	go func() { served <- server.Serve(pipe) }()
	s := &site{api: a, act: func(*Request) (Done, error) { return Done{Message: "Paused.", Next: "/queues"}, nil }}
	s.Server = New(Config{BasePath: "/base/", Dial: func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) },
		Sessions: visitor.NewSessions(s.findSession, s.endSession, 0)}, s.pages())
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s
}

// get requests a page, with headers in pairs. The prefix is stripped before a request gets here.
func (s *site) get(path string, headers ...string) *httptest.ResponseRecorder {
	return s.send(http.MethodGet, path, "", headers...)
}

// post submits a form as a page of this server would.
func (s *site) post(path string, values url.Values, headers ...string) *httptest.ResponseRecorder {
	return s.send(http.MethodPost, path, values.Encode(), append([]string{"Content-Type", "application/x-www-form-urlencoded",
		"Sec-Fetch-Site", "same-origin"}, headers...)...)
}

func (s *site) send(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

const (
	script = "HX-Request"
	cookie = "Cookie"
)

// good is the cookie of a session of the token that the API wants.
var good = sessionOf("pawl_good")

// sessionOf returns the cookie of a new session of a token.
func sessionOf(token string) string {
	w := httptest.NewRecorder()
	visitor.NewSessions(func(auth.SessionID) (auth.SessionKey, error) { return auth.SessionKey{}, auth.ErrNoSession },
		nil, 0).Begin(w, token)
	return "__Host-pawl=" + w.Result().Cookies()[0].Value
}

func (s *site) endSession(ctx context.Context, _ auth.Session) error {
	if ctx.Err() == nil {
		s.ended++
	}
	return ctx.Err()
}

// findSession finds the keys of the tokens of these tests.
func (s *site) findSession(id auth.SessionID) (auth.SessionKey, error) {
	if s.deaf != nil {
		return auth.SessionKey{}, s.deaf
	}
	for _, token := range []string{"pawl_good", "pawl_bad", "pawl_other"} {
		if k := auth.SessionKeyOf(auth.HashOf(token)); k.ID == id {
			return k, nil
		}
	}
	return auth.SessionKey{}, auth.ErrNoSession
}

// expect fails the test unless a response has a status and contains all the words.
func expect(t *testing.T, what string, w *httptest.ResponseRecorder, code int, words ...string) {
	t.Helper()
	if w.Code != code {
		t.Errorf("%s: status %d, want %d", what, w.Code, code)
	}
	for _, word := range words {
		if !strings.Contains(w.Body.String(), word) {
			t.Errorf("%s: %q is not in %s", what, word, w.Body)
		}
	}
}

// leads fails the test unless a response leads to a URL.
func leads(t *testing.T, what string, w *httptest.ResponseRecorder, code int, to string) {
	t.Helper()
	if got := w.Header().Get("Location") + w.Header().Get("HX-Redirect"); w.Code != code || got != to {
		t.Errorf("%s: status %d to %q, want %d to %q", what, w.Code, got, code, to)
	}
}

// A page comes with the layout; a refresh has only what lives, and the counts of the menu.
func TestPages(t *testing.T) {
	s := newSite(t)
	whole := s.get("/queues")
	expect(t, "a page", whole, 200, "<!doctype", "<title>Queues · Pawl</title>", `href="/base/queues"`, `data-beat="4000"`,
		"no access control", `hx-get="/base/queues"`)
	if strings.Contains(whole.Body.String(), baseMark) || whole.Header().Get("Pawl-Menu") != "" || whole.Header().Get("ETag") != "" ||
		whole.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("a page has the headers %v, or a mark", whole.Header())
	}
	expect(t, "a page that is watched", s.get("/watched?q=state:dead"), 200, `data-beat="10000"`, `data-watch="/base/live?`,
		`value="state:dead"`)
	if other := s.get("/queues?q=state:dead"); strings.Contains(other.Body.String(), `value="state:dead"`) {
		t.Error("the search of another page shows its query")
	}
	part := s.get("/queues", script, "true")
	if body := part.Body.String(); part.Code != 200 || !strings.HasPrefix(body, `<p class="list">`) ||
		part.Header().Get("Pawl-Menu") == "" || part.Header().Get("ETag") == "" {
		t.Errorf("a refresh: status %d, %v, %s", part.Code, part.Header(), body)
	}
	if again := s.get("/queues", script, "true", "If-None-Match", part.Header().Get("ETag")); again.Code != 304 || again.Body.Len() > 0 {
		t.Errorf("a refresh without changes: status %d, %q", again.Code, again.Body)
	}
	if again := s.get("/queues?name=x", script, "true", "If-None-Match", part.Header().Get("ETag")); again.Code != 200 {
		t.Errorf("a refresh with changes: status %d", again.Code)
	}
	expect(t, "neither", s.get("/raw"), 200, "raw")
	leads(t, "a page that leads elsewhere", s.get("/queues?fail=done"), 303, "/base/elsewhere")
	leads(t, "a refresh that leads elsewhere", s.get("/queues?fail=done", script, "true"), 204, "/base/elsewhere")
	expect(t, "an unknown page", s.get("/nothing"), 404, "no page has this address", "Not found")
	expect(t, "a file without a name", s.get("/static"), 404)
	expect(t, "a wrong method", s.post("/queues", nil), 422, "does not accept POST")
}

// Errors are shown with what may help; the text of an error that is none of the API's is not.
func TestErrorPages(t *testing.T) {
	s := newSite(t)
	odd := s.get("/queues?fail=odd")
	expect(t, "an odd error", odd, 500, "the page could not be rendered", "You can open", `href="/base/tasks"`)
	if strings.Contains(odd.Body.String(), ">odd<") || strings.Contains(odd.Body.String(), "shard 7") {
		t.Errorf("an odd error is shown: %s", odd.Body)
	}
	away := s.get("/queues?fail=unavailable")
	if expect(t, "no leader", away, 503, "shard 7 has no leader"); strings.Contains(away.Body.String(), "You can open") {
		t.Error("pages are offered that won't open either")
	}
	if part := s.get("/queues?fail=odd", script, "true"); part.Code != 500 || strings.Contains(part.Body.String(), "<!doctype") ||
		strings.Contains(part.Body.String(), "You can open") {
		t.Errorf("a refresh: status %d, %s", part.Code, part.Body)
	}
	expect(t, "a template that fails", s.get("/queues?fail=template"), 500, "the page could not be rendered")
}

// A page names the shards and nodes whose part it lacks, each once, also when a script refreshes it.
func TestPagesNameWhatTheyLack(t *testing.T) {
	s := newSite(t)
	for _, headers := range [][]string{nil, {script, "true"}} {
		w := s.get("/queues?lacks=1", headers...)
		expect(t, "a page", w, 200, "<b>Node n&lt;3</b> did not answer in time. This page lacks its part.",
			"<b>Shard 4</b> has no leader. This page lacks its part.")
		if n := strings.Count(w.Body.String(), "lacks its part"); n != 2 {
			t.Errorf("the page names %d parts, want 2", n)
		}
		if w := s.get("/queues", headers...); strings.Contains(w.Body.String(), "lacks its part") {
			t.Error("a page that lacks nothing says that it does")
		}
	}
}

// The form of an action is shown on top of a page or as one, with what was wrong and the input.
func TestActions(t *testing.T) {
	s := newSite(t)
	expect(t, "a form", s.get("/act?x=1"), 200, "<!doctype", `action="/base/act?x=1"`, "Pause it")
	if part := s.get("/act", script, "true"); part.Code != 200 || strings.Contains(part.Body.String(), "<!doctype") {
		t.Errorf("a form on a page: status %d", part.Code)
	}
	expect(t, "a form that can't be built", s.get("/act?noform=1"), 503)
	var sent string
	s.act = func(req *Request) (Done, error) {
		sent = req.Value("reason")
		return Done{Message: "Paused.", Next: "/queues"}, nil
	}
	done := s.post("/act", url.Values{"reason": {" a\r\nb "}})
	if leads(t, "an action", done, 303, "/base/queues"); sent != "a\nb" || !strings.Contains(done.Header().Get("Set-Cookie"),
		"pawl-said=Paused.") {
		t.Errorf("sent %q; the next page shows %q", sent, done.Header().Get("Set-Cookie"))
	}
	leads(t, "an action of a script", s.post("/act", nil, script, "true"), 204, "/base/queues")
	for _, c := range []struct {
		err    error
		path   string
		code   int
		script bool
		words  []string
	}{
		{&pawltype.Error{Code: pawltype.ErrInvalidArgument, Field: "reason", Message: "reason: is too long"}, "/act", 422, false,
			[]string{"<!doctype", "is too long", "my reason", "Pause it"}},
		{&pawltype.Error{Code: pawltype.ErrNotFound, Message: "no such queue"}, "/act", 404, true, []string{"no such queue", "my reason"}},
		{ErrShowAgain, "/act", 200, false, []string{"my reason", "Pause it"}},
		{&pawltype.Error{Code: pawltype.ErrUnavailable, Message: "no leader"}, "/act?noform=1", 503, false,
			[]string{"<!doctype", "Outcome unknown", "my reason", "Try again"}},
		{&pawltype.Error{Code: pawltype.ErrUnavailable, Message: "no leader"}, "/act?noform=1", 503, true, []string{"Outcome unknown"}},
		{ErrShowAgain, "/act?noform=1", 503, false, nil},
	} {
		s.act = func(*Request) (Done, error) { return Done{}, c.err }
		headers := []string{script, fmt.Sprint(c.script)}
		w := s.post(c.path, url.Values{"reason": {"my reason"}}, headers...)
		what := fmt.Sprintf("%s refused with %v, script %v", c.path, c.err, c.script)
		if expect(t, what, w, c.code, c.words...); c.script && strings.Contains(w.Body.String(), "<!doctype") {
			t.Errorf("%s: a whole page", what)
		}
		if retarget := w.Header().Get("HX-Retarget") != ""; retarget != (c.script && c.path != "/act") {
			t.Errorf("%s: only the error is shown: %v", what, retarget)
		}
	}
	s.act = func(*Request) (Done, error) { return Done{}, pawltype.ErrUnauthenticated }
	w := s.post("/act", nil)
	expect(t, "an action without a session", w, 401, "Your session has ended", "Nothing was changed", `href="/base/login"`)
	s.act = func(*Request) (Done, error) {
		return Done{Secret: &Secret{Title: "Token", Text: strings.Repeat("x", 2*leastZipped), Secret: "pawl_secret", Next: "/tokens"}}, nil
	}
	w = s.post("/act", nil, "Accept-Encoding", "gzip")
	if expect(t, "a secret", w, 200, "pawl_secret", `href="/base/tokens"`); w.Header().Get("Content-Encoding") != "" ||
		w.Header().Get("Set-Cookie") != "" {
		t.Errorf("a secret has the headers %v", w.Header())
	}
}

// While it is not known who asks, a form is performed all the same if the API may have been too slow, but not if it refused.
func TestUnknownActor(t *testing.T) {
	s := newSite(t)
	for _, c := range []struct {
		err  error
		code int
		did  bool
	}{{nil, 303, true}, {status.Error(codes.PermissionDenied, "no"), 403, false}, {status.Error(codes.Unauthenticated, "no"), 401, false}} {
		s.api.set(func(a *api) { a.refuses = c.err })
		did := false
		s.act = func(*Request) (Done, error) { did = true; return Done{Next: "/queues"}, nil }
		if w := s.post("/act", nil); w.Code != c.code || did != c.did {
			t.Errorf("with %v: status %d, done: %v", c.err, w.Code, did)
		}
	}
}

// A form is read only if it is one, and not longer than its visitor may send.
func TestReadForm(t *testing.T) {
	s := newSite(t)
	kind := "application/x-www-form-urlencoded"
	for _, c := range []struct {
		what, kind, body string
		code             int
	}{
		{"a form", kind, "reason=x", 303},
		{"with a parameter", kind + "; charset=utf-8", "reason=x", 303},
		{"another kind", "text/plain", "reason=x", 422},
		{"no kind", "", "reason=x", 422},
		{"malformed", kind, "reason=%zz", 422},
		{"as long as it may be", kind, "reason=" + strings.Repeat("x", maxForm-len("reason=")), 303},
		{"too long", kind, "reason=" + strings.Repeat("x", maxForm-len("reason=")+1), 413},
	} {
		w := s.send(http.MethodPost, "/act", c.body, "Content-Type", c.kind, "Sec-Fetch-Site", "same-origin")
		if w.Code != c.code || (w.Header().Get("Connection") == "close") != (c.code == 413) {
			t.Errorf("%s: status %d, want %d; %v", c.what, w.Code, c.code, w.Header())
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/login", io.MultiReader(strings.NewReader("token="),
		strings.NewReader(strings.Repeat("x", maxAnonymousForm))))
	r.Header.Set("Content-Type", kind)
	r.ContentLength = -1
	req := s.newRequest(httptest.NewRecorder(), r)
	if err := req.readForm(); !errors.Is(err, pawltype.ErrPayloadTooLarge) || !strings.Contains(err.Error(), "at most 4 KiB") {
		t.Errorf("a form of unknown length: %v", err)
	}
}

// Only pages of this server may change something.
func TestGuard(t *testing.T) {
	s := newSite(t)
	for _, c := range []struct {
		method, site, origin string
		code                 int
	}{
		{"POST", "same-origin", "", 303}, {"POST", "", "http://example.com", 303}, {"POST", "", "", 403}, {"POST", "cross-site", "", 403},
		{"POST", "same-site", "", 403}, {"POST", "", "http://evil.example", 403}, {"DELETE", "", "", 403}, {"GET", "cross-site", "", 200},
		{"GET", "", "", 200}, {"HEAD", "", "", 200}, {"OPTIONS", "", "", 422},
	} {
		var headers []string
		for name, value := range map[string]string{"Sec-Fetch-Site": c.site, "Origin": c.origin,
			"Content-Type": "application/x-www-form-urlencoded"} {
			if value != "" {
				headers = append(headers, name, value)
			}
		}
		w := s.send(c.method, "/act", "", headers...)
		if w.Code != c.code {
			t.Errorf("%s from %q, %q: status %d, want %d", c.method, c.site, c.origin, w.Code, c.code)
		}
		for _, name := range []string{"Content-Security-Policy", "X-Content-Type-Options", "X-Frame-Options", "Referrer-Policy",
			"Cross-Origin-Opener-Policy"} {
			if w.Header().Get(name) == "" {
				t.Errorf("%s from %q, %q: no %s", c.method, c.site, c.origin, name)
			}
		}
	}
}

// Pages from a certain size are compressed, unless another site asked for them.
func TestCompression(t *testing.T) {
	s := newSite(t)
	long := "/queues?long=" + strings.Repeat("x", 300)
	for _, c := range []struct {
		path, site, accepts string
		zipped              bool
	}{{long, "", "gzip", true}, {long, "same-origin", "gzip", true}, {long, "none", "gzip", true}, {long, "cross-site", "gzip", false},
		{long, "same-site", "gzip", false}, {long, "", "br", false}, {"/queues", "", "gzip", false}} {
		w := s.get(c.path, "Accept-Encoding", c.accepts, "Sec-Fetch-Site", c.site, script, "true")
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != c.zipped || w.Header().Get("Vary") != "HX-Request, Accept-Encoding" {
			t.Errorf("%.20s for %q, %q: compressed %v", c.path, c.site, c.accepts, got)
		}
		if !c.zipped {
			continue
		}
		z, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		if plain, err := io.ReadAll(z); err != nil || !bytes.Contains(plain, []byte(strings.Repeat("z", 3000)+" <a")) {
			t.Errorf("%.20s: %d bytes, %v", c.path, len(plain), err)
		}
	}
	if page := []byte(strings.Repeat("page", 500)); len(zip(page)) > 100 {
		t.Error("a page is not compressed")
	}
}

// Relative times are no part of a page's tag; everything else is.
func TestTags(t *testing.T) {
	const page = `<p>a <time datetime="1">1s ago</time> b <time datetime="2">2s ago</time> c</p>`
	for text, same := range map[string]bool{
		strings.Replace(page, "1s ago", "5s ago", 1): true, strings.Replace(page, "2s ago", "9s ago", 1): true,
		strings.Replace(page, `"1"`, `"3"`, 1): false, strings.Replace(page, "a ", "x ", 1): false,
		strings.Replace(page, " b ", " x ", 1): false, strings.Replace(page, " c", " x", 1): false, page + "more": false,
	} {
		if got := tagOf([]byte(text)) == tagOf([]byte(page)); got != same {
			t.Errorf("%s has the same tag: %v", text, got)
		}
	}
	if tag := tagOf(nil); !strings.HasPrefix(tag, `W/"`) || len(tag) != len(`W/""`)+24 {
		t.Errorf("a tag is %s", tag)
	}
}

// The pages of a visitor's namespace have one URL each.
func TestNamespaces(t *testing.T) {
	s := newSite(t)
	team := func(all bool) *pawlv1.WhoAmIResponse {
		return &pawlv1.WhoAmIResponse{Namespace: "team", AllNamespaces: all, TokenRequired: true, Roles: []string{"observe"}}
	}
	expect(t, "a page of a namespace", s.get("/in/team/queues"), 200, `href="/base/in/team/queues"`, "<span>team</span>")
	leads(t, "the default namespace by its name", s.get("/in/default/queues?a=b"), 303, "/base/queues?a=b")
	if one := s.get("/queues"); strings.Contains(one.Body.String(), "Namespace of this page") {
		t.Error("a choice among one namespace is offered")
	}
	s.api.set(func(a *api) { a.spaces = 0 })
	if none := s.get("/queues"); strings.Contains(none.Body.String(), "Namespace of this page") {
		t.Error("a choice among no namespaces is offered")
	}
	leads(t, "a form of the default namespace by its name", s.post("/in/default/act", nil), 303, "/base/queues")
	s.api.set(func(a *api) { a.spaces = 2 })
	expect(t, "one of two namespaces", s.get("/queues"), 200, "Namespace of this page", "<span>default</span>")
	s.api.set(func(a *api) { a.me[""], a.me["team"] = team(false), team(false) })
	leads(t, "the page of a token's namespace", s.get("/queues?a=b"), 303, "/base/in/team/queues?a=b")
	if w := s.get("/in/team/queues"); w.Code != 200 || strings.Contains(w.Body.String(), "Namespace of this page") {
		t.Errorf("a token of one namespace: status %d, or a choice", w.Code)
	}
	// Of a namespace in which the visitor can't make calls, links lead to where he can.
	away := s.get("/in/other/queues")
	if expect(t, "another namespace", away, 403, "You can open", `href="/base/queues"`,
		`data-can="observe"`); strings.Contains(away.Body.String(), "/in/other/tasks") ||
		!strings.Contains(away.Body.String(), `form-place"`) {
		t.Errorf("links stay in a namespace that can't be seen: %s", away.Body)
	}
	req := &Request{Links: Links{httptest.NewRequest(http.MethodGet, "/", nil), "/base"}, server: s.Server}
	if req.SwitchTo("team"); req.URL("queues") != "/base/in/team/queues" || req.Root() != "/base" {
		t.Errorf("links of another namespace lead to %s, below %s", req.URL("queues"), req.Root())
	}
	if who := req.Visitor("x"); who.Namespace != "x" || who.Token != "" {
		t.Errorf("the visitor is %+v", who)
	}
}

// A visitor who may not see the overview starts at another page.
func TestStartPage(t *testing.T) {
	s := newSite(t)
	for roles, to := range map[string]string{"produce": "/base/enqueue", "observe": "/base/queues", "produce observe": "/base/queues",
		"consume": "/base/settings"} {
		s.api.set(func(a *api) {
			a.me[""] = &pawlv1.WhoAmIResponse{Namespace: "default", TokenRequired: true, Roles: strings.Fields(roles),
				Queues: []string{"mail*"}}
		})
		leads(t, roles, s.get("/"), 303, to)
		expect(t, roles+", by a script", s.get("/", script, "true"), 403)
	}
}

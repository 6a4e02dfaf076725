package ui

import (
	"context"
	"errors"
	"html/template"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/asset"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/live"
	"github.com/pawlq/pawl/internal/ui/problem"
	"github.com/pawlq/pawl/internal/ui/visitor"
	"github.com/pawlq/pawl/pawltype"
)

// Config configures a UI.
type Config struct {
	// Dial connects to the API on behalf of a client host.
	Dial func(ctx context.Context, from string) (net.Conn, error)
	// BasePath is the prefix of all URL paths that browsers see, such as "/pawl"; "": none. It is stripped from requests before they get here.
	BasePath string
	Logger   *slog.Logger // nil: none
	// OpenAPI returns the OpenAPI document, for the API reference.
	OpenAPI func() []byte
}

// UI serves the web pages. It is safe for concurrent use.
type UI struct {
	base      string
	log       *slog.Logger
	visitors  *visitor.Clients
	live      *live.Streams
	assets    *asset.Files
	templates func() map[string]*template.Template // parsed for the first page
	api       func() (*apiDocument, error)
	counts    counts
	handler   http.Handler
}

// page is a path that shows something.
type page struct {
	path     string // net/http pattern, below the base
	template string // file in templates/, without .html
	nav      string // path of its entry in the menu
	show     func(*visit) (*screen, error)
}

// screen is the content of a page.
type screen struct {
	Title string
	Data  any  // for the template
	Still bool // it is never refreshed
	// Watch selects the events that change it; nil: none do.
	Watch *live.Watch
	Beat  time.Duration // maximum refresh interval; 0: slowRefresh, or quickRefresh without a Watch
}

// action is a path that changes something: GET shows its form, POST performs it.
type action struct {
	path string
	nav  string
	form func(*visit) (*form.Form, error)
	do   func(*visit) (done, error)
}

// done is the outcome of an action: a message, and the next page, below the base.
type done struct {
	Said, Next string
	Once       *secret // is shown instead
}

// secret is shown only once, after the action that created it.
type secret struct {
	Title, Text, Secret string
	Commands, Facts     []form.Fact
	Next                string // the next page, below the base
}

// raw is a path that serves something other than a page.
type raw struct {
	path  string
	serve func(*visit) error
}

func (u *UI) pages() []page {
	return slices.Concat(overviewPages, queuePages, typePages, taskPages, deadPages, schedulePages, workerPages, groupPages, operationPages, auditPages, clusterPages, webhookPages, markerPages, namespacePages, tokenPages, settingsPages, apiPages)
}

func (u *UI) actions() []action {
	return slices.Concat(queueActions, queueSettingsActions, taskActions, viewActions, selectedActions, enqueueActions, deadActions, scheduleActions, workerActions, groupActions, operationActions, clusterActions, webhookActions, markerActions, namespaceActions, tokenActions, settingsActions)
}

// New returns a UI. It connects to the API on the first request.
func New(cfg Config) *UI {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	u := &UI{base: strings.TrimSuffix(cfg.BasePath, "/"), log: cfg.Logger, visitors: visitor.NewClients(cfg.Dial, cfg.Logger)}
	u.live = live.NewStreams(u.visitors)
	u.assets = asset.New(u.base)
	u.api = u.readAPI(cfg.OpenAPI)
	u.templates = sync.OnceValue(u.parse)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /static/{name...}", u.assets.Serve)
	for _, p := range u.pages() {
		mux.HandleFunc("GET "+p.path, func(w http.ResponseWriter, r *http.Request) { u.visit(w, r, func(v *visit) error { return v.show(p) }) })
	}
	for _, a := range u.actions() {
		mux.HandleFunc("GET "+a.path, func(w http.ResponseWriter, r *http.Request) { u.visit(w, r, func(v *visit) error { return v.ask(a) }) })
		mux.HandleFunc("POST "+a.path, func(w http.ResponseWriter, r *http.Request) { u.visit(w, r, func(v *visit) error { return v.act(a) }) })
	}
	for _, a := range rawAddresses {
		mux.HandleFunc("GET "+a.path, func(w http.ResponseWriter, r *http.Request) { u.visit(w, r, a.serve) })
	}
	mux.Handle("GET /live", u.live)
	mux.HandleFunc("GET /login", u.login)
	mux.HandleFunc("POST /login", u.login)
	mux.HandleFunc("POST /logout", u.logout)
	for _, path := range []string{"/", "/static"} { // for /static, net/http would redirect to /static/ without the prefix
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { u.visit(w, r, notFound) })
	}
	u.handler = guard(visitor.StripNamespace(u.base, mux))
	return u
}

// ServeHTTP implements http.Handler.
func (u *UI) ServeHTTP(w http.ResponseWriter, r *http.Request) { u.handler.ServeHTTP(w, r) }

// Close ends the streams and closes the connections of all visitors. It must be called only once.
func (u *UI) Close() error {
	u.live.Close()
	return u.visitors.Close()
}

// callTime is how long the calls for a page may take.
const callTime = 20 * time.Second

// visit is a request for a page or an action.
type visit struct {
	*UI
	base   string // prefix of the URLs of the namespace's pages
	left   bool   // links lead out of the namespace, whose pages can't be shown
	w      http.ResponseWriter
	r      *http.Request
	ctx    context.Context
	client *pawl.Client
	me     *admin.Identity // nil: not looked up
	now    time.Time
	nav    string // path of the menu's entry
}

func (u *UI) visit(w http.ResponseWriter, r *http.Request, handle func(*visit) error) {
	limit := callTime
	if r.Method == http.MethodPost {
		limit = form.ActTime
	}
	v := u.newVisit(w, r)
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	v.ctx = ctx
	client, leave, err := u.visitors.Client(visitor.Of(r))
	if err == nil {
		defer leave()
		v.client = client
		err = v.answer(handle)
	}
	if errors.Is(err, pawltype.ErrUnauthenticated) {
		v.toLogin()
		return
	}
	if to := v.elsewhere(err); to != "" {
		v.redirect(to)
		return
	}
	if err != nil {
		v.fail(err)
	}
}

func (u *UI) newVisit(w http.ResponseWriter, r *http.Request) *visit {
	return &visit{UI: u, base: visitor.BasePath(u.base, visitor.Namespace(r)), w: w, r: r, ctx: r.Context(), now: time.Now()}
}

// answer identifies the visitor if a whole page is requested or a form is submitted, and calls handle. It does not read the form of a visitor who is
// refused.
func (v *visit) answer(handle func(*visit) error) (err error) {
	isPost := v.r.Method == http.MethodPost
	if !isPost && (v.partial() || v.r.Method != http.MethodGet) {
		return handle(v)
	}
	v.me, err = v.admin().Access().WhoAmI(v.ctx)
	if isPost && problem.OutcomeUnknown(err) { // the input must be shown again
		return handle(v)
	}
	if err != nil {
		if !errors.Is(err, pawltype.ErrUnauthenticated) {
			v.leave()
		}
		return err
	}
	if !isPost && v.toCanonicalURL() {
		return nil
	}
	return handle(v)
}

func (v *visit) admin() admin.Client { return admin.New(v.client).WithActor(visitor.Name(v.r)) }

// query returns a parameter of the URL.
func (v *visit) query(name string) string { return v.r.URL.Query().Get(name) }

// here returns the request's path and query below the base, with some parameters changed; "" removes one.
func (v *visit) here(set ...string) string {
	q := v.r.URL.Query()
	for i := 0; i+1 < len(set); i += 2 {
		if set[i+1] == "" {
			q.Del(set[i])
		} else {
			q.Set(set[i], set[i+1])
		}
	}
	path := v.r.URL.EscapedPath()
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return path
}

// partial reports whether a script asks for a refresh, or for a form to show on top of the page.
func (v *visit) partial() bool { return v.r.Header.Get("HX-Request") == "true" }

func (v *visit) show(p page) error {
	v.nav = p.nav
	s, err := p.show(v)
	if err != nil || s == nil {
		return err
	}
	if v.partial() {
		v.setCountsHeader()
		return v.render(http.StatusOK, p.template, "live", s.Data)
	}
	return v.render(http.StatusOK, p.template, "layout", v.frame(s))
}

// ask shows the form of an action.
func (v *visit) ask(a action) error {
	v.nav = a.nav
	f, err := v.formOf(a)
	if err != nil {
		return err
	}
	return v.showForm(http.StatusOK, f)
}

// formOf returns an action's form without any input.
func (v *visit) formOf(a action) (*form.Form, error) {
	f, err := a.form(v)
	if err == nil {
		err = f.AddVersion()
	}
	return f, err
}

// act performs an action. If the API refuses it, the error is shown in the form, with the input.
func (v *visit) act(a action) error {
	v.nav = a.nav
	if err := v.readForm(); err != nil {
		return err
	}
	d, err := a.do(v)
	if errors.Is(err, errCheck) {
		f, err := v.formOf(a)
		if err != nil {
			return err
		}
		f.Refill(v.r.PostForm)
		return v.showForm(http.StatusOK, f)
	}
	if err == nil && d.Once != nil {
		return v.showPart(http.StatusOK, "secret", &screen{Title: d.Once.Title, Data: d.Once, Still: true})
	}
	if err == nil {
		v.setFlash(d.Said)
		v.redirect(d.Next)
		return nil
	}
	if errors.Is(err, pawltype.ErrUnauthenticated) {
		return err
	}
	f, formErr := v.formOf(a)
	if formErr != nil {
		return v.showFallback(a, err)
	}
	f.Refill(v.r.PostForm)
	f.Refuse(err)
	return v.showForm(problem.Status(err), f)
}

// errCheck is returned by an action that was only asked to show its form again.
var errCheck = errors.New("show the form again")

// redirect redirects to a path below the base.
func (v *visit) redirect(to string) {
	if v.partial() {
		v.w.Header().Set("HX-Redirect", v.base+to)
		v.w.WriteHeader(http.StatusNoContent)
		return
	}
	http.Redirect(v.w, v.r, v.base+to, http.StatusSeeOther)
}

// flash is the cookie that carries a message to the next page.
const flash = "pawl-said"

// setFlash shows a message on the next page.
func (v *visit) setFlash(what string) {
	http.SetCookie(v.w, v.cookie(flash, url.QueryEscape(format.Clip(what, 300)), 60))
}

// cookie returns a cookie for the pages of all namespaces. age is in seconds; below 0 it deletes the cookie.
func (v *visit) cookie(name, value string, age int) *http.Cookie {
	return &http.Cookie{Name: name, Value: value, Path: v.UI.base + "/", MaxAge: age, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: v.r.TLS != nil}
}

// takeFlash returns and removes the message from the previous page.
func (v *visit) takeFlash() string {
	c, err := v.r.Cookie(flash)
	if err != nil {
		return ""
	}
	http.SetCookie(v.w, v.cookie(flash, "", -1))
	text, err := url.QueryUnescape(c.Value)
	if err != nil {
		return ""
	}
	return text
}

// errNoPage is returned for an unknown path.
var errNoPage = &pawltype.Error{Code: "not_found", Message: "no page has this address"}

func notFound(v *visit) error {
	if v.r.Method != http.MethodGet && v.r.Method != http.MethodHead {
		return &pawltype.Error{Code: "invalid_argument", Message: "this address does not accept " + v.r.Method}
	}
	return errNoPage
}

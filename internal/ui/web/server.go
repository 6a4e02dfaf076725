package web

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/visitor"
	"github.com/pawlq/pawl/pawltype"
)

// Config configures a server.
type Config struct {
	// Dial connects to the API on behalf of a client host.
	Dial func(ctx context.Context, from string) (net.Conn, error)
	// BasePath is the prefix of all URL paths that browsers see, such as "/pawl"; "": none. It is stripped from
	// requests before they get here.
	BasePath string
	Logger   *slog.Logger // nil: none
	// Sessions opens the sessions of visitors who have logged in.
	Sessions *visitor.Sessions
	// LoggedIn, if not nil, is called when a visitor has logged in with a token, from a host.
	LoggedIn func(host string, me *admin.Identity)
}

// Server serves pages. It is safe for concurrent use.
type Server struct {
	base      string // prefix of all pages
	log       *slog.Logger
	loggedIn  func(host string, me *admin.Identity)
	clients   *visitor.Clients
	sessions  *visitor.Sessions
	live      *Streams
	templates *Templates
	counts    counts
	handler   http.Handler
}

// New returns a server of some pages. It connects to the API on the first request.
func New(cfg Config, sets ...Set) *Server {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{base: strings.TrimSuffix(cfg.BasePath, "/"), log: cfg.Logger, loggedIn: cfg.LoggedIn,
		clients: visitor.NewClients(cfg.Dial, cfg.Logger), sessions: cfg.Sessions}
	s.live = NewStreams(s.clients, s.sessions)
	assets := NewFiles(s.base)
	s.templates = NewTemplates(s.base, assets, sets...)
	mux := http.NewServeMux()
	handle := func(pattern string, answer func(*Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, answer) })
	}
	for _, set := range sets {
		for _, p := range set.Pages {
			handle("GET "+p.Path, func(req *Request) error { return s.show(req, p) })
		}
		for _, a := range set.Actions {
			handle("GET "+a.Path, func(req *Request) error { return s.ask(req, a) })
			handle("POST "+a.Path, func(req *Request) error { return s.act(req, a) })
		}
		for _, a := range set.Raw {
			handle("GET "+a.Path, a.Serve)
		}
	}
	for _, path := range []string{"/", "/static"} { // for /static, net/http would redirect to /static/ without the prefix
		handle(path, notFound)
	}
	mux.HandleFunc("GET /static/{name...}", assets.Serve)
	mux.Handle("GET /live", s.live)
	mux.HandleFunc("GET /login", s.login)
	mux.HandleFunc("POST /login", s.login)
	mux.HandleFunc("POST /logout", s.logout)
	s.handler = guard(s.sessions.Open(visitor.StripNamespace(s.base, mux)))
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Close ends the streams and closes the connections of all visitors. It must be called only once.
func (s *Server) Close() error {
	s.live.Close()
	return s.clients.Close()
}

// callTime is how long the calls for a page may take.
const callTime = 20 * time.Second

// serve answers a request within the time that it may take.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, handle func(*Request) error) {
	limit := callTime
	if r.Method == http.MethodPost {
		limit = form.ActTime
	}
	req := s.newRequest(w, r)
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	req.Ctx = ctx
	err := visitor.SessionError(r)
	if err == nil {
		err = s.answerAs(req, visitor.Of(r), handle)
	}
	if errors.Is(err, pawltype.ErrUnauthenticated) {
		if r.Method == http.MethodPost {
			s.askAgain(req)
		} else {
			req.toLogin()
		}
		return
	}
	if to := req.elsewhere(err); to != "" {
		req.Redirect(to)
		return
	}
	if err != nil {
		s.fail(req, err)
	}
}

func (s *Server) answerAs(req *Request, who visitor.Visitor, handle func(*Request) error) error {
	client, leave, err := s.clients.Client(who)
	if err != nil {
		return err
	}
	defer leave()
	req.Client = client
	if req.byPerson() {
		s.sessions.Renew(req.Writer, req.HTTP)
	}
	return s.answer(req, handle)
}

func (s *Server) newRequest(w http.ResponseWriter, r *http.Request) *Request {
	return &Request{Links: Links{r, visitor.BasePath(s.base, visitor.Namespace(r))}, server: s, Writer: w,
		Ctx: r.Context(), Now: time.Now()}
}

// answer identifies the visitor if a whole page or a form is requested, or a form is submitted, and calls handle. It
// does not read the form of a visitor who is refused.
func (s *Server) answer(req *Request, handle func(*Request) error) (err error) {
	isPost := req.HTTP.Method == http.MethodPost
	if !isPost && (!req.byPerson() || req.HTTP.Method != http.MethodGet) {
		return handle(req)
	}
	req.me, err = req.Admin().Access().WhoAmI(req.Ctx)
	if req.partial() && !isPost || isPost && format.OutcomeUnknown(err) { // the input must be shown again
		return handle(req)
	}
	if err != nil {
		if !errors.Is(err, pawltype.ErrUnauthenticated) {
			req.leave()
		}
		return err
	}
	if !isPost && req.toCanonicalURL() {
		return nil
	}
	return handle(req)
}

func (s *Server) show(req *Request, p Page) error {
	req.nav = p.Nav
	content, err := p.Show(req)
	if err != nil || content == nil {
		return err
	}
	if req.partial() {
		s.counts.setHeader(req)
		return req.Render(http.StatusOK, p.Template, "fresh", &frame{Data: content.Data, Missing: req.missing})
	}
	return req.Render(http.StatusOK, p.Template, "layout", s.frame(req, content))
}

// ask shows the form of an action.
func (s *Server) ask(req *Request, a Action) error {
	req.nav = a.Nav
	f, err := formOf(req, a)
	if err != nil {
		return err
	}
	return s.showForm(req, http.StatusOK, f)
}

// formOf returns an action's form without any input.
func formOf(req *Request, a Action) (*form.Form, error) {
	f, err := a.Form(req)
	if err != nil {
		return nil, err
	}
	if a.Outlasting && visitor.Token(req.HTTP) != "" {
		f.Fields = append([]form.Field{form.Token()}, f.Fields...)
	}
	return f, f.AddVersion()
}

// act performs an action. If the API refuses it, the error is shown in the form, with the input.
func (s *Server) act(req *Request, a Action) error {
	req.nav = a.Nav
	if err := req.readForm(); err != nil {
		return err
	}
	var d Done
	err := req.errOtherVisitor()
	if err == nil && a.Outlasting {
		err = req.errNoToken()
	}
	if err == nil {
		d, err = a.Do(req)
	}
	if errors.Is(err, ErrShowAgain) {
		f, err := formOf(req, a)
		if err != nil {
			return err
		}
		f.Refill(req.HTTP.PostForm)
		return s.showForm(req, http.StatusOK, f)
	}
	if err == nil && d.Secret != nil {
		return s.showPart(req, http.StatusOK, "secret", &Screen{Title: d.Secret.Title, Data: d.Secret, NoRefresh: true})
	}
	if err == nil {
		req.setFlash(d.Message)
		req.Redirect(d.Next)
		return nil
	}
	if errors.Is(err, pawltype.ErrUnauthenticated) {
		return err
	}
	f, formErr := formOf(req, a)
	if formErr != nil {
		return s.showFallback(req, a, err)
	}
	f.Refill(req.HTTP.PostForm)
	f.Refuse(err)
	return s.showForm(req, format.StatusOf(err), f)
}

// errNoPage is returned for an unknown path.
var errNoPage = &pawltype.Error{Code: "not_found", Message: "no page has this address"}

func notFound(req *Request) error {
	if req.HTTP.Method != http.MethodGet && req.HTTP.Method != http.MethodHead {
		return &pawltype.Error{Code: "invalid_argument", Message: "this address does not accept " + req.HTTP.Method}
	}
	return errNoPage
}

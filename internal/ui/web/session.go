package web

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/visitor"
	"github.com/pawlq/pawl/pawltype"
)

// toLogin redirects to the login form, which returns to the current page.
func (req *Request) toLogin() {
	next := req.path()
	if req.partial() {
		next = pathOf(req.HTTP.Header.Get("HX-Current-URL"), req.base)
	}
	req.Redirect("/login?next=" + url.QueryEscape(next))
}

// askAgain answers a form that was sent after its session had ended. Its input stays where it is, in the browser, which sends it again
// once the visitor has logged in: in the open form, or as the request that a reload repeats.
func (s *Server) askAgain(req *Request) {
	part, data := "layout", any(nil)
	if req.partial() {
		req.Writer.Header().Set("HX-Retarget", "find .refusal")
		req.Writer.Header().Set("HX-Reswap", "innerHTML")
		part = "ended"
	} else {
		page := s.frame(req, &Screen{Title: "Your session has ended", NoRefresh: true})
		page.LoggedOut = true
		data = page
	}
	if err := req.Render(http.StatusUnauthorized, "ended", part, data); err != nil {
		s.fail(req, err)
	}
}

// errOtherVisitor refuses a form that another visitor has filled in, in the same browser.
func (req *Request) errOtherVisitor() error {
	if as := req.Hidden(form.VisitorField); as != "" && req.me != nil && as != req.me.Name {
		return &pawltype.Error{Code: "other_visitor",
			Message: fmt.Sprintf("%q opened this form, and you are logged in as %q: send it again to "+
				"do this as %q", as, req.me.Name, req.me.Name)}
	}
	return nil
}

// errNoToken fails unless the visitor has entered the token of the session. Without a session there is none to enter.
func (req *Request) errNoToken() error {
	if token := visitor.Token(req.HTTP); token != "" && subtle.ConstantTimeCompare([]byte(req.Value(form.TokenField)), []byte(token)) != 1 {
		return format.BadField(form.TokenField, "is not the token that you logged in with")
	}
	return nil
}

// pathOf returns the path of a URL below the base, whatever its host.
func pathOf(address, base string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "/"
	}
	path, ok := strings.CutPrefix(u.EscapedPath(), base)
	if !ok {
		return "/"
	}
	if u.RawQuery != "" {
		path += "?" + u.RawQuery
	}
	return LocalPath(path)
}

// LocalPath returns path if it can only lead below the base, otherwise that of the overview.
func LocalPath(path string) string {
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.ContainsAny(path, "\\\r\n\t") {
		return "/"
	}
	return path
}

// login serves the login form and handles its submission.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	req := s.newRequest(w, r)
	if r.Method == http.MethodPost {
		s.takeToken(req)
		return
	}
	var refused error
	if req.Query("kept") != "" {
		if visitor.Token(r) != "" {
			req.Redirect(LocalPath(req.Query("next")))
			return
		}
		if refused = visitor.SessionError(r); refused == nil {
			refused = &pawltype.Error{Code: "unauthenticated", Message: visitor.WhyNoSession(r)}
		}
	}
	s.askToken(req, http.StatusOK, refused)
}

func (s *Server) askToken(req *Request, status int, refused error) {
	f := &form.Form{Title: "Log in", Text: "Log in with an access token.", Button: "Log in", Action: req.Here("kept", ""),
		Fields: []form.Field{{Name: "token", Label: "Token", Kind: "secret", Placeholder: "pawl_…",
			Hint: "An admin creates one with pawl token add NAME --role operate --queue '*'. " +
				"You stay logged in while you use the pages, at most 12 hours."}}}
	if refused != nil {
		f.Refuse(refused)
	}
	part, data := "live", any(f)
	if !req.partial() {
		login := s.frame(req, &Screen{Title: "Log in", Data: f, NoRefresh: true})
		login.LoggedOut = true
		part, data = "layout", login
	}
	if err := req.Render(status, "form", part, data); err != nil {
		s.fail(req, err)
	}
}

// takeToken logs in if the API accepts the submitted token.
func (s *Server) takeToken(req *Request) {
	if err := req.readForm(); err != nil {
		s.fail(req, err)
		return
	}
	token := req.Value("token")
	var me *admin.Identity
	err := visitor.CheckToken(token)
	if err == nil {
		me, err = s.try(req, token)
	}
	if err != nil {
		s.askToken(req, http.StatusUnprocessableEntity, err)
		return
	}
	if !me.TokenRequired { // there are no sessions
		req.Redirect(LocalPath(req.Query("next")))
		return
	}
	if visitor.Token(req.HTTP) != "" { // nobody can log out of it any more, and an answer that is on its way might bring it back
		_ = s.endSession(req) // then it ends by itself
	}
	s.sessions.Begin(req.Writer, token)
	req.Redirect("/login?kept=yes&next=" + url.QueryEscape(LocalPath(req.Query("next"))))
}

func (s *Server) try(req *Request, token string) (*admin.Identity, error) {
	who := req.Visitor("")
	who.Token = token
	me, err := req.CheckVisitor(who)
	if err == nil && me.TokenRequired && s.loggedIn != nil {
		s.loggedIn(who.Host(), me)
	}
	if e, ok := errors.AsType[*pawltype.Error](err); ok && e.Field == "" {
		beside := *e
		beside.Field = "token"
		return nil, &beside
	}
	return me, err
}

// logout ends a session.
func (s *Server) logout(w http.ResponseWriter, r *http.Request) {
	req := s.newRequest(w, r)
	if err := s.endSession(req); err != nil {
		why := "the cluster did not answer"
		if errors.Is(err, visitor.ErrManyEnd) {
			why = "many sessions of its token are ending"
		}
		req.setFlash("You are logged out in this browser only: a copy of its session is valid until it ends by itself, because " + why +
			".")
	}
	req.Redirect("/login")
}

// endSession ends the session of a request, even if the browser is closed meanwhile.
func (s *Server) endSession(req *Request) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.HTTP.Context()), callTime)
	defer cancel()
	return s.sessions.End(ctx, req.Writer, req.HTTP)
}

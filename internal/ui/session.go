package ui

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/visitor"
	"github.com/pawlq/pawl/pawltype"
)

// toLogin redirects to the login form, which returns to the current page.
func (v *visit) toLogin() {
	next := v.here() // for an action this is its form
	if v.partial() {
		next = pathOf(v.r.Header.Get("HX-Current-URL"), v.base)
	}
	if v.r.Method != http.MethodGet {
		v.setFlash("Your session had ended. Nothing was changed.")
	}
	v.redirect("/login?next=" + url.QueryEscape(next))
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
	return ownPath(path)
}

// ownPath returns path if it can only lead below the base, otherwise that of the overview.
func ownPath(path string) string {
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.ContainsAny(path, "\\\r\n\t") {
		return "/"
	}
	return path
}

// login serves the login form and handles its submission.
func (u *UI) login(w http.ResponseWriter, r *http.Request) {
	v := u.newVisit(w, r)
	if r.Method == http.MethodPost {
		v.takeToken()
		return
	}
	var refused error
	if v.query("kept") != "" {
		if visitor.Token(r) != "" {
			v.redirect(ownPath(v.query("next")))
			return
		}
		refused = &pawltype.Error{Code: "unauthenticated", Message: "the browser did not keep the session: browsers do so only over HTTPS, or for a server on the same machine"}
	}
	v.askToken(http.StatusOK, refused)
}

func (v *visit) askToken(status int, refused error) {
	f := &form.Form{Title: "Log in", Text: "Log in with an access token.", Button: "Log in", Action: v.base + v.here("kept", ""),
		Fields: []form.Field{{Name: "token", Label: "Token", Kind: "secret", Placeholder: "pawl_…", Hint: "An admin creates one with pawl token add NAME --role operate. You stay logged in until you close the browser."}}}
	if refused != nil {
		f.Refuse(refused)
	}
	part, data := "live", any(f)
	if !v.partial() {
		s := v.frame(&screen{Title: "Log in", Data: f, Still: true})
		s.Bare = true
		part, data = "layout", s
	}
	if err := v.render(status, "form", part, data); err != nil {
		v.fail(err)
	}
}

// takeToken logs in if the API accepts the submitted token.
func (v *visit) takeToken() {
	if err := v.readForm(); err != nil {
		v.fail(err)
		return
	}
	token := v.value("token")
	err := visitor.CheckToken(token)
	if err == nil {
		err = v.try(token)
	}
	if err != nil {
		v.askToken(http.StatusUnprocessableEntity, err)
		return
	}
	visitor.SetSession(v.w, token)
	v.redirect("/login?kept=yes&next=" + url.QueryEscape(ownPath(v.query("next"))))
}

func (v *visit) try(token string) error {
	who := v.in("")
	who.Token = token
	err := v.known(who)
	if e, ok := errors.AsType[*pawltype.Error](err); ok && e.Field == "" {
		beside := *e
		beside.Field = "token"
		return &beside
	}
	return err
}

// logout ends a session.
func (u *UI) logout(w http.ResponseWriter, r *http.Request) {
	v := u.newVisit(w, r)
	visitor.SetSession(v.w, "")
	v.redirect("/login")
}

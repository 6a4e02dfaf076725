package ui

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/problem"
	"github.com/pawlq/pawl/pawltype"
)

// A session is a cookie that holds the visitor's token: the server keeps no state. Browsers send the cookie only to this host, over HTTPS or to the
// local machine, with requests from the host's own pages, and hide it from scripts. It ends with the browser. All ports and paths of the host
// receive it: no attribute of a cookie can separate them.
const sessionCookie = "__Host-pawl"

// maxToken is longer than any token.
const maxToken = 256

// tokenOf returns the token in a request; "": none. Anything that can't be a token is not passed on.
func tokenOf(r *http.Request) string {
	c, err := r.Cookie(sessionCookie)
	if err != nil || checkToken(c.Value) != nil {
		return ""
	}
	return c.Value
}

// checkToken rejects what can't be part of a header. Whether it is a valid token is for the API to decide.
func checkToken(token string) error {
	if token == "" || len(token) > maxToken || strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' || c == ';' || c == '"' || c == ',' || c == '\\' }) {
		return problem.BadField("token", "is not a token: tokens consist of letters, digits and _")
	}
	return nil
}

// setSessionCookie sets the session cookie; "" deletes it.
func (v *visit) setSessionCookie(token string) {
	c := &http.Cookie{Name: sessionCookie, Value: token, Path: "/", HttpOnly: true, Secure: true, SameSite: http.SameSiteStrictMode}
	if token == "" {
		c.MaxAge = -1
	}
	http.SetCookie(v.w, c)
}

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
		if tokenOf(r) != "" {
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
	err := checkToken(token)
	if err == nil {
		err = v.try(token)
	}
	if err != nil {
		v.askToken(http.StatusUnprocessableEntity, err)
		return
	}
	v.setSessionCookie(token)
	v.redirect("/login?kept=yes&next=" + url.QueryEscape(ownPath(v.query("next"))))
}

func (v *visit) try(token string) error {
	who := v.in("")
	who.token = token
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
	v.setSessionCookie("")
	v.redirect("/login")
}

// rights returns the visitor's rights as words by which pages hide actions. Whatever pages show, the API decides.
func rights(me *admin.Identity) string {
	if me == nil || !me.TokenRequired {
		return "observe operate produce admin cluster"
	}
	var all []string
	for _, r := range me.Roles {
		all = append(all, string(r))
	}
	if slices.Contains(me.Roles, admin.RoleAdmin) && me.AllNamespaces {
		all = append(all, "cluster")
	}
	return strings.Join(all, " ")
}

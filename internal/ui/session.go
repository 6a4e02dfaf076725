package ui

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
)

// A session is a cookie that holds the visitor's token: nothing is kept on the server. Browsers send it only to this host, over HTTPS or
// to the own machine, with requests of its own pages, and show it to no script. It ends with the browser. All ports and paths of the host get
// it: no attribute of a cookie keeps them apart.
const sessionCookie = "__Host-pawl"

// maxToken is more than a token has.
const maxToken = 256

// tokenOf is the token that a request shows; "": none. What can't be one is shown to nobody.
func tokenOf(r *http.Request) string {
	c, err := r.Cookie(sessionCookie)
	if err != nil || checkToken(c.Value) != nil {
		return ""
	}
	return c.Value
}

// checkToken refuses what would not fit a header. The API says what is a token.
func checkToken(token string) error {
	if token == "" || len(token) > maxToken || strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' || c == ';' || c == '"' || c == ',' || c == '\\' }) {
		return badField("token", "is not a token: tokens consist of letters, digits and _")
	}
	return nil
}

// remember sets the cookie of a session; "" ends it.
func (v *visit) remember(token string) {
	c := &http.Cookie{Name: sessionCookie, Value: token, Path: "/", HttpOnly: true, Secure: true, SameSite: http.SameSiteStrictMode}
	if token == "" {
		c.MaxAge = -1
	}
	http.SetCookie(v.w, c)
}

// toLogin asks who the visitor is, and comes back to where they were.
func (v *visit) toLogin() {
	next := v.here() // of an action this is its form
	if v.partial() {
		next = pathOf(v.r.Header.Get("HX-Current-URL"), v.base)
	}
	if v.r.Method != http.MethodGet {
		v.say("Your session had ended. Nothing was changed.")
	}
	v.redirect("/login?next=" + url.QueryEscape(next))
}

// pathOf is the address below the base that a URL has, whatever its host.
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

// ownPath is an address below the base, or the overview for what could lead elsewhere.
func ownPath(path string) string {
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.ContainsAny(path, "\\\r\n\t") {
		return "/"
	}
	return path
}

// login shows and takes the form by which a visitor shows a token.
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
	f := &form{Title: "Log in", Text: "Log in with an access token.", Button: "Log in", Action: v.base + v.here("kept", ""),
		Fields: []field{{Name: "token", Label: "Token", Kind: "secret", Placeholder: "pawl_…", Hint: "An admin creates one with pawl token add NAME --role operate. You stay logged in until you close the browser."}}}
	if refused != nil {
		f.refuse(refused)
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

// takeToken asks the API whether a token is good.
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
	v.remember(token)
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
	v.remember("")
	v.redirect("/login")
}

// rights are what a visitor may do, as words that pages hide actions by: the API decides whatever pages show.
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

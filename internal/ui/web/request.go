package web

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/visitor"
	"github.com/pawlq/pawl/pawltype"
)

// Request is a request for a page or an action.
type Request struct {
	Links
	server  *Server
	left    bool // links lead out of the namespace, whose pages can't be shown
	Writer  http.ResponseWriter
	Ctx     context.Context
	Client  *pawl.Client
	me      *admin.Identity // nil: not looked up
	Now     time.Time
	nav     string             // path of the menu's entry
	missing []pawltype.Missing // what the answers lacked
	counted map[string]int64   // counts of the menu that the page has read itself, by path
}

// Lacks notes that an answer lacked the part of some shards or nodes. The page names them.
func (req *Request) Lacks(missing []pawltype.Missing) {
	for _, m := range missing {
		if !slices.ContainsFunc(req.missing, func(n pawltype.Missing) bool { return n.Node == m.Node && n.Shard == m.Shard }) {
			req.missing = append(req.missing, m)
		}
	}
}

// Counted notes a count that the page shows, for the entry of the menu.
func (req *Request) Counted(path string, n int64) {
	if req.counted == nil {
		req.counted = map[string]int64{}
	}
	req.counted[path] = n
}

// Admin returns the API's calls for operators, with the visitor's rights.
func (req *Request) Admin() admin.Client {
	return admin.New(req.Client).WithActor(visitor.Name(req.HTTP))
}

// partial reports whether a script asks for a refresh, or for a form to show on top of the page.
func (req *Request) partial() bool { return req.HTTP.Header.Get("HX-Request") == "true" }

// byPerson reports whether a person asks: not a page that refreshes itself, but a visit, a form, or a link that opens one on top of the
// page.
func (req *Request) byPerson() bool {
	return !req.partial() || req.HTTP.Method == http.MethodPost || req.HTTP.Header.Get("HX-Target") == "dialog"
}

// Redirect redirects to a path below the base.
func (req *Request) Redirect(to string) {
	if req.partial() {
		req.Writer.Header().Set("HX-Redirect", req.base+to)
		req.Writer.WriteHeader(http.StatusNoContent)
		return
	}
	http.Redirect(req.Writer, req.HTTP, req.base+to, http.StatusSeeOther)
}

// flash is the cookie that carries a message to the next page.
const flash = "pawl-said"

// setFlash shows a message on the next page.
func (req *Request) setFlash(what string) {
	http.SetCookie(req.Writer, req.cookie(flash, url.QueryEscape(format.Clip(what, 300)), 60))
}

// cookie returns a cookie for the pages of all namespaces. age is in seconds; below 0 it deletes the cookie.
func (req *Request) cookie(name, value string, age int) *http.Cookie {
	return &http.Cookie{Name: name, Value: value, Path: req.server.base + "/", MaxAge: age, HttpOnly: true,
		SameSite: http.SameSiteStrictMode, Secure: req.HTTP.TLS != nil}
}

// takeFlash returns and removes the message from the previous page.
func (req *Request) takeFlash() string {
	c, err := req.HTTP.Cookie(flash)
	if err != nil {
		return ""
	}
	http.SetCookie(req.Writer, req.cookie(flash, "", -1))
	text, err := url.QueryUnescape(c.Value)
	if err != nil {
		return ""
	}
	return text
}

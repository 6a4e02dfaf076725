// Package visitor decides as whom a request calls the API: by the token in its cookie, the namespace in its URL, the
// remote host, and the name that the visitor chose.
//
// It keeps the clients of recent visitors, one for each. It knows what the cookies and URLs contain, but not what pages do with a client.
package visitor

import (
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/pawlq/pawl/internal/ui/format"
)

// Visitor identifies as whom a request calls the API.
type Visitor struct {
	host string // remote host
	Name string // self-chosen
	// Token is the one in the request; "": none.
	Token string
	// Namespace is the one in the URL; "": the token's.
	Namespace string
}

// Of is the one place that decides as whom a request calls the API.
func Of(r *http.Request) Visitor {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = "local"
	}
	return Visitor{host: host, Name: Name(r), Token: Token(r), Namespace: Namespace(r)}
}

// Host returns the remote host.
func (v Visitor) Host() string { return v.host }

// NameCookie holds the name that the audit log shows for a visitor.
const NameCookie = "pawl-name"

// Name returns a visitor's self-chosen name. A cookie can contain anything: what the API would reject is ignored.
func Name(r *http.Request) string {
	return CookieText(r, NameCookie)
}

// CookieText returns the text in a cookie, if the API would accept it in a header.
func CookieText(r *http.Request, cookie string) string {
	c, err := r.Cookie(cookie)
	if err != nil {
		return ""
	}
	text, err := url.QueryUnescape(c.Value)
	if err != nil || CheckName(text) != nil {
		return ""
	}
	return text
}

// CheckName rejects what the API would reject as an actor's name.
func CheckName(name string) error {
	const most = 256
	if len(name) > most {
		return format.BadField("name", "%d bytes, at most %d are allowed", len(name), most)
	}
	if strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c > '~' }) {
		return format.BadField("name", "%q contains characters other than printable ASCII", format.Clip(name, 60))
	}
	return nil
}

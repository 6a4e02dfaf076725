package visitor

import (
	"net/http"
	"strings"

	"github.com/pawlq/pawl/internal/ui/problem"
)

// A session is a cookie that holds the visitor's token: the server keeps no state. Browsers send the cookie only to this host, over HTTPS or to the
// local machine, with requests from the host's own pages, and hide it from scripts. It ends with the browser. All ports and paths of the host
// receive it: no attribute of a cookie can separate them.
const sessionCookie = "__Host-pawl"

// maxToken is longer than any token.
const maxToken = 256

// Token returns the token in a request; "": none. Anything that can't be a token is not passed on.
func Token(r *http.Request) string {
	c, err := r.Cookie(sessionCookie)
	if err != nil || CheckToken(c.Value) != nil {
		return ""
	}
	return c.Value
}

// CheckToken rejects what can't be part of a header. Whether it is a valid token is for the API to decide.
func CheckToken(token string) error {
	if token == "" || len(token) > maxToken || strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' || c == ';' || c == '"' || c == ',' || c == '\\' }) {
		return problem.BadField("token", "is not a token: tokens consist of letters, digits and _")
	}
	return nil
}

// SetSession sets the session cookie to a token; "" deletes it.
func SetSession(w http.ResponseWriter, token string) {
	c := &http.Cookie{Name: sessionCookie, Value: token, Path: "/", HttpOnly: true, Secure: true, SameSite: http.SameSiteStrictMode}
	if token == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

package web

import (
	"net/http"

	"github.com/pawlq/pawl/internal/ui/visitor"
)

// ThemeCookie holds "light" or "dark". A script sets it as well.
const ThemeCookie = "pawl-theme"

// KeysCookie holds "off" if single-letter shortcuts are disabled, as speech input software requires.
const KeysCookie = "pawl-keys"

// NoKeys reports whether the visitor has disabled single-letter shortcuts.
func NoKeys(r *http.Request) bool { return visitor.CookieText(r, KeysCookie) == "off" }

// yearSeconds is how long a visitor's choices are kept.
const yearSeconds = 365 * 24 * 3600

// Theme returns the theme that the visitor chose: "light", "dark"; "": the system's.
func Theme(r *http.Request) string {
	c, err := r.Cookie(ThemeCookie)
	if err != nil || c.Value != "light" && c.Value != "dark" {
		return ""
	}
	return c.Value
}

// KeepCookie sets a long-lived cookie; "" deletes it.
func (req *Request) KeepCookie(name, value string) {
	age := yearSeconds
	if value == "" {
		age = -1
	}
	c := req.cookie(name, value, age)
	c.HttpOnly = name != ThemeCookie // the theme switch's script sets that one
	http.SetCookie(req.Writer, c)
}

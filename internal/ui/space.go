package ui

import (
	"context"
	"net/http"
	"strings"

	"github.com/pawlq/pawl/admin"
)

// The URL of a page contains its namespace: pages of namespaces other than default are below /in/NAME. So pages can be bookmarked, shared and opened
// side by side, and a form applies to the namespace in which it was shown.
const spacePath = "/in/"

type spaceKey struct{}

// spaceOf returns the namespace in a request's URL; "": none.
func spaceOf(r *http.Request) string {
	name, _ := r.Context().Value(spaceKey{}).(string)
	return name
}

// within strips the namespace from a request's URL.
func (u *UI) within(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest, ok := strings.CutPrefix(r.URL.EscapedPath(), spacePath)
		name, _, whole := strings.Cut(rest, "/")
		if !ok || name == "" || len(name) > maxSpace || strings.Trim(name, spaceLetters) != "" {
			next.ServeHTTP(w, r)
			return
		}
		if !whole {
			http.Redirect(w, r, u.baseOf(name)+"/", http.StatusMovedPermanently)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), spaceKey{}, name))
		http.StripPrefix(spacePath+name, next).ServeHTTP(w, r)
	})
}

// The API defines valid names of namespaces; these keep anything else out of URLs.
const (
	maxSpace     = 63 // bytes
	spaceLetters = "abcdefghijklmnopqrstuvwxyz0123456789-"
)

// baseOf returns the prefix of a namespace's pages; "" is the visitor's default namespace.
func (u *UI) baseOf(space string) string {
	if space == "" || space == "default" {
		return u.base
	}
	return u.base + spacePath + space
}

// toCanonicalURL redirects to a page's canonical URL if it was requested by another: to the namespace of the visitor's token, or to the URL without a
// namespace if none is needed. It reports whether it did.
func (v *visit) toCanonicalURL() bool {
	if base := v.baseOf(v.me.Namespace); base != v.base || spaceOf(v.r) == "default" {
		http.Redirect(v.w, v.r, base+v.here(), http.StatusSeeOther)
		return true
	}
	return false
}

// leave makes links lead out of a namespace in which the visitor can't make calls, and finds out what the visitor may do elsewhere.
func (v *visit) leave() {
	if spaceOf(v.r) == "" {
		return
	}
	v.base, v.left = v.UI.base, true
	_ = v.as(v.in(""), func(a admin.Client) (err error) { // on failure the visitor is unknown, and the menu has all pages
		v.me, err = a.Access().WhoAmI(v.ctx)
		return err
	})
}

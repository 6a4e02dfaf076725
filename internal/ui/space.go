package ui

import (
	"context"
	"net/http"
	"strings"

	"github.com/pawlq/pawl/admin"
)

// The address of a page says of which namespace it is: those of another than default are below /in/NAME. So pages can be kept, passed on and
// open beside each other, and a form does what it says where it was shown.
const spacePath = "/in/"

type spaceKey struct{}

// spaceOf is the namespace in the address of a request; "": none.
func spaceOf(r *http.Request) string {
	name, _ := r.Context().Value(spaceKey{}).(string)
	return name
}

// within takes the namespace out of the address of a request.
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

// What a namespace's name may be says the API; these keep others out of addresses.
const (
	maxSpace     = 63 // bytes
	spaceLetters = "abcdefghijklmnopqrstuvwxyz0123456789-"
)

// baseOf is the prefix of all addresses of a namespace's pages; "": those that are the visitor's own.
func (u *UI) baseOf(space string) string {
	if space == "" || space == "default" {
		return u.base
	}
	return u.base + spacePath + space
}

// settle answers with the one address that a page has, if it was asked for by another: that of the namespace of the visitor's token, or without
// one that needs none. It reports whether it did.
func (v *visit) settle() bool {
	if base := v.baseOf(v.me.Namespace); base != v.base || spaceOf(v.r) == "default" {
		http.Redirect(v.w, v.r, base+v.here(), http.StatusSeeOther)
		return true
	}
	return false
}

// leave lets what follows lead out of a namespace in which nothing can be asked, and finds out what the visitor may do elsewhere.
func (v *visit) leave() {
	if spaceOf(v.r) == "" {
		return
	}
	v.base, v.left = v.UI.base, true
	_ = v.as(v.in(""), func(a admin.Client) (err error) { // or nobody is known, and the menu has all pages
		v.me, err = a.Access().WhoAmI(v.ctx)
		return err
	})
}

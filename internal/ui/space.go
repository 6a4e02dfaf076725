package ui

import (
	"net/http"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/visitor"
)

// toCanonicalURL redirects to a page's canonical URL if it was requested by another: to the namespace of the visitor's token, or to the URL without a
// namespace if none is needed. It reports whether it did.
func (v *visit) toCanonicalURL() bool {
	if base := visitor.BasePath(v.UI.base, v.me.Namespace); base != v.base || visitor.Namespace(v.r) == "default" {
		http.Redirect(v.w, v.r, base+v.here(), http.StatusSeeOther)
		return true
	}
	return false
}

// leave makes links lead out of a namespace in which the visitor can't make calls, and finds out what the visitor may do elsewhere.
func (v *visit) leave() {
	if visitor.Namespace(v.r) == "" {
		return
	}
	v.base, v.left = v.UI.base, true
	_ = v.as(v.in(""), func(a admin.Client) (err error) { // on failure the visitor is unknown, and the menu has all pages
		v.me, err = a.Access().WhoAmI(v.ctx)
		return err
	})
}

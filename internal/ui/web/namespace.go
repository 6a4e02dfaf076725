package web

import (
	"net/http"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/visitor"
	"github.com/pawlq/pawl/pawltype"
)

// toCanonicalURL redirects to a page's canonical URL if it was requested by another: to the namespace of the visitor's
// token, or to the URL without a namespace if none is needed. It reports whether it did.
func (req *Request) toCanonicalURL() bool {
	if base := visitor.BasePath(req.server.base, req.me.Namespace); base != req.base || visitor.Namespace(req.HTTP) == "default" {
		http.Redirect(req.Writer, req.HTTP, base+req.path(), http.StatusSeeOther)
		return true
	}
	return false
}

// leave makes links lead out of a namespace in which the visitor can't make calls, and finds out what the visitor may do elsewhere.
func (req *Request) leave() {
	if visitor.Namespace(req.HTTP) == "" {
		return
	}
	req.base, req.left = req.server.base, true
	_ = req.As(req.Visitor(""), func(a admin.Client) (err error) { // on failure the visitor is unknown, and the menu has all pages
		req.me, err = a.Access().WhoAmI(req.Ctx)
		return err
	})
}

// Root returns the prefix of the pages of all namespaces.
func (req *Request) Root() string { return req.server.base }

// SwitchTo makes the next page one of another namespace; "" is the visitor's default namespace.
func (req *Request) SwitchTo(namespace string) {
	req.base = visitor.BasePath(req.server.base, namespace)
}

// several reports whether the visitor can choose between namespaces.
func (req *Request) several() (many bool) {
	if req.me == nil || !req.me.AllNamespaces {
		return false
	}
	if req.me.Namespace != "default" {
		return true
	}
	page, err := req.Admin().Namespaces().ListPage(req.Ctx, admin.NamespaceFilter{}, pawltype.PageRequest{Limit: 2})
	return err == nil && len(page.Items) > 1
}

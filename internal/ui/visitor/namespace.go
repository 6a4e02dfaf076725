package visitor

import (
	"context"
	"net/http"
	"strings"
)

// The URL of a page contains its namespace: pages of namespaces other than default are below /in/NAME. So pages can be
// bookmarked, shared and opened side by side, and a form applies to the namespace in which it was shown.
const NamespacePath = "/in/"

type namespaceKey struct{}

// Namespace returns the namespace in a request's URL; "": none.
func Namespace(r *http.Request) string {
	name, _ := r.Context().Value(namespaceKey{}).(string)
	return name
}

// StripNamespace serves requests with their URL's namespace removed. base is the prefix of all URL paths.
func StripNamespace(base string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest, ok := strings.CutPrefix(r.URL.EscapedPath(), NamespacePath)
		name, _, whole := strings.Cut(rest, "/")
		if !ok || name == "" || len(name) > maxNamespace || strings.Trim(name, namespaceLetters) != "" {
			next.ServeHTTP(w, r)
			return
		}
		if !whole {
			http.Redirect(w, r, BasePath(base, name)+"/", http.StatusMovedPermanently)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), namespaceKey{}, name))
		http.StripPrefix(NamespacePath+name, next).ServeHTTP(w, r)
	})
}

// The API defines valid names of namespaces; these keep anything else out of URLs.
const (
	maxNamespace     = 63 // bytes
	namespaceLetters = "abcdefghijklmnopqrstuvwxyz0123456789-"
)

// BasePath returns the prefix of a namespace's pages; "" is the visitor's default namespace. base is the prefix of all pages.
func BasePath(base, namespace string) string {
	if namespace == "" || namespace == "default" {
		return base
	}
	return base + NamespacePath + namespace
}

package web

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/pawlq/pawl/admin"
)

// Links makes the URLs of a page from the URL of its request.
type Links struct {
	HTTP *http.Request
	base string // prefix of the URLs of the namespace's pages
}

// Query returns a parameter of the URL.
func (l *Links) Query(name string) string { return l.HTTP.URL.Query().Get(name) }

// PathValue returns a part of the URL's path, by its name in the page's pattern.
func (l *Links) PathValue(name string) string { return l.HTTP.PathValue(name) }

// path returns the request's path and query below the base, with some parameters changed; "" removes one.
func (l *Links) path(set ...string) string {
	q := l.HTTP.URL.Query()
	for i := 0; i+1 < len(set); i += 2 {
		if set[i+1] == "" {
			q.Del(set[i])
		} else {
			q.Set(set[i], set[i+1])
		}
	}
	path := l.HTTP.URL.EscapedPath()
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return path
}

// Here returns the URL of the request, with some parameters changed; "" removes one.
func (l *Links) Here(set ...string) string { return l.base + l.path(set...) }

// URL returns the URL of a page, by the parts of its path.
func (l *Links) URL(parts ...any) string { return addressOf(l.base, parts) }

// Find returns the URL of the tasks that a filter selects, which is given as names and values of its fields.
func (l *Links) Find(field string, value any, more ...any) string {
	return findAddress(l.base, append([]any{field, value}, more...))
}

// maxReturnPath is the maximum length of a path to return to, in bytes.
const maxReturnPath = 4 << 10

// ReturnPath returns the path of the page, for actions that lead back to it.
func (l *Links) ReturnPath() string {
	path := l.path()
	if len(path) > maxReturnPath {
		return (&url.URL{Path: l.HTTP.URL.Path}).String()
	}
	return path
}

// PathTo returns the path of a page below the base, by its parts.
func PathTo(parts ...any) string { return addressOf("", parts) }

// addressOf returns the URL of a page: the base, followed by the parts as path segments. A part "?a=b" is appended as it is.
func addressOf(base string, parts []any) string {
	var b strings.Builder
	b.WriteString(base)
	for _, p := range parts {
		s := fmt.Sprint(p)
		if strings.HasPrefix(s, "?") {
			b.WriteString(s)
			continue
		}
		b.WriteByte('/')
		b.WriteString(url.PathEscape(s))
	}
	if len(parts) == 0 {
		b.WriteByte('/')
	}
	return b.String()
}

// findAddress returns the URL of the tasks selected by a filter, which is given as names and values of its fields. It
// has at least one, since an empty filter selects every task, and offers actions on all of them.
func findAddress(base string, pairs []any) string {
	var terms admin.FilterTerms
	for i := 0; i+1 < len(pairs); i += 2 {
		if value := fmt.Sprint(pairs[i+1]); value != "" {
			terms = append(terms, admin.FilterTerm{Field: fmt.Sprint(pairs[i]), Value: value})
		}
	}
	return addressOf(base, []any{"tasks", "?q=" + url.QueryEscape(terms.String())})
}

// Chip is a link that changes the filter.
type Chip struct {
	Label, URL string
	On         bool
}

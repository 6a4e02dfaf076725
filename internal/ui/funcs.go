package ui

import (
	"crypto/rand"
	"fmt"
	"html/template"
	"net/url"
	"strings"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/ui/format"
)

// funcs are the functions of templates. They build all URLs, so that none lacks the prefix.
func (u *UI) funcs() template.FuncMap {
	return template.FuncMap{
		// URLs.
		"url": func(parts ...any) string { return addressOf(baseMark, parts) }, // of a page, by the parts of its path
		"at":  func(path string) string { return baseMark + path },             // of a path below the base
		"find": func(field string, value any, more ...any) string { // of the tasks that a filter selects
			return findAddress(baseMark, append([]any{field, value}, more...))
		},
		"root":  func() string { return u.base + "/" }, // of the overview, without a namespace
		"asset": u.assets.Url,                          // of a file in static/
		// Times and durations.
		"ago":    func(t time.Time) format.Moment { return format.Ago(t, time.Now()) },
		"day":    format.Day,
		"now":    time.Now,
		"span":   format.Duration,
		"offset": format.Offset,
		"median": format.Median,
		// Numbers.
		"num":    format.Number,      // 1,204
		"short":  format.ShortNumber, // 12.3k
		"bytes":  format.Size,
		"rate":   format.Rate,
		"host":   format.Host, // of a URL
		"failed": format.FailureRate,
		"plural": format.Plural, // 1 task, 1,204 tasks
		// Texts.
		"clip":  func(n int, s string) string { return format.Clip(s, n) },                 // at most n characters
		"words": format.List,                                                               // a comma-separated list
		"reads": func(s any) string { return strings.ReplaceAll(fmt.Sprint(s), "_", " ") }, // a word of the API
		"named": humanize.Named,                                                            // in figures
		"tidy":  format.Tidy,                                                               // a sentence of the API
		// For templates that call others.
		"strings": func(roles []admin.Role) (all []string) {
			for _, r := range roles {
				all = append(all, string(r))
			}
			return all
		},
		"dict": dict,
		"icon": icon,
	}
}

// baseMark stands for the base in rendered templates, which are parsed once while the base differs between visits. It is random, so that no input
// can contain it.
var baseMark = "/" + rand.Text()

func (v *visit) url(parts ...any) string { return addressOf(v.base, parts) }

func (v *visit) find(field string, value any, more ...any) string {
	return findAddress(v.base, append([]any{field, value}, more...))
}

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

// findAddress returns the URL of the tasks selected by a filter, which is given as names and values of its fields. It has at least one, since an
// empty filter selects every task, and offers actions on all of them.
func findAddress(base string, pairs []any) string {
	var terms []term
	for i := 0; i+1 < len(pairs); i += 2 {
		if value := fmt.Sprint(pairs[i+1]); value != "" {
			terms = append(terms, term{Field: fmt.Sprint(pairs[i]), Value: value})
		}
	}
	return addressOf(base, []any{"tasks", "?q=" + url.QueryEscape(termsText(terms))})
}

// dict lets a template pass several values to a part.
func dict(pairs ...any) map[string]any {
	m := make(map[string]any, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		m[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	return m
}

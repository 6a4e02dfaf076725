package web

import (
	"crypto/rand"
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/ui/format"
)

// funcs are the functions of templates. They build all URLs, so that none lacks the prefix.
func funcs(base string, assets *Files) template.FuncMap {
	return template.FuncMap{
		// URLs.
		"url": func(parts ...any) string { return addressOf(baseMark, parts) }, // of a page, by the parts of its path
		"at":  func(path string) string { return baseMark + path },             // of a path below the base
		"find": func(field string, value any, more ...any) string { // of the tasks that a filter selects
			return findAddress(baseMark, append([]any{field, value}, more...))
		},
		"root":  func() string { return base + "/" }, // of the overview, without a namespace
		"asset": assets.URL,                          // of a file in static/
		// Times and durations.
		"ago":    func(t time.Time) format.Moment { return format.Ago(t, time.Now()) },
		"day":    format.Day,
		"now":    time.Now,
		"span":   format.Duration,
		"age":    format.Age,
		"offset": format.Offset,
		"median": format.Median,
		// Numbers.
		"num":    format.Number,      // 1,204
		"short":  format.ShortNumber, // 12.3k
		"bytes":  format.Size,
		"rate":   format.Rate,
		"perMin": format.PerMinute,
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

// baseMark stands for the base in rendered templates, which are parsed once while the base differs between requests. It
// is random, so that no input can contain it.
var baseMark = "/" + rand.Text()

// dict lets a template pass several values to a part.
func dict(pairs ...any) map[string]any {
	m := make(map[string]any, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		m[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	return m
}

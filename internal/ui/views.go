package ui

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/problem"
	"github.com/pawlq/pawl/internal/ui/visitor"
)

var viewActions = []action{
	{path: "/views/save", nav: "/tasks", form: saveViewForm, do: doSaveView},
	{path: "/views/remove", nav: "/tasks", form: removeViewForm, do: doRemoveView},
}

// savedView is a named filter. Views are kept in a cookie: they work without scripts and API calls, and anybody who may read may save some. The
// server has no place for a visitor's settings, since there are no accounts.
type savedView struct {
	Space  string `json:"s,omitempty"` // as in URLs
	Name   string `json:"n"`
	Filter string `json:"f"`
}

// viewsCookie holds the browser's views.
const viewsCookie = "pawl-views"

// Limits of views: browsers keep 4 KiB per cookie.
const (
	maxViews      = 20 // in all namespaces
	maxViewName   = 40 // in characters
	maxViewFilter = 1 << 10
	maxViewBytes  = 3500 // of the cookie
)

// savedViews returns the browser's views of all namespaces.
func savedViews(r *http.Request) (views []savedView) {
	c, err := r.Cookie(viewsCookie)
	if err != nil {
		return nil
	}
	data, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil || len(data) > maxViewBytes || json.Unmarshal(data, &views) != nil {
		return nil
	}
	views = slices.DeleteFunc(views, func(w savedView) bool { return w.check() != nil })
	return views[:min(len(views), maxViews)]
}

// check rejects an invalid view.
func (w savedView) check() error {
	switch {
	case w.Name == "":
		return problem.BadField("name", "is required")
	case !utf8.ValidString(w.Name) || strings.ContainsFunc(w.Name, func(c rune) bool { return c < ' ' || format.IsBidiControl(c) }):
		return problem.BadField("name", "contains invisible characters")
	case utf8.RuneCountInString(w.Name) > maxViewName:
		return problem.BadField("name", "%d characters, at most %d are allowed", utf8.RuneCountInString(w.Name), maxViewName)
	case w.Filter == "":
		return problem.BadField("q", "is required: filter the tasks first")
	case len(w.Filter) > maxViewFilter:
		return problem.BadField("q", "%d bytes, at most %d are allowed", len(w.Filter), maxViewFilter)
	}
	return nil
}

func (v *visit) keepViews(views []savedView) error {
	if len(views) == 0 {
		v.keep(viewsCookie, "")
		return nil
	}
	data, err := json.Marshal(views)
	if err != nil {
		return err
	}
	value := base64.RawURLEncoding.EncodeToString(data)
	if len(views) > maxViews || len(value) > maxViewBytes {
		return problem.BadField("name", "%d views with %d bytes exceed the limit of %d views and %d bytes per browser: remove one first", len(views), len(value), maxViews, maxViewBytes)
	}
	v.keep(viewsCookie, value)
	return nil
}

// viewsView are the views shown above a list of tasks.
type viewsView struct {
	Views  []chip
	Save   string // URL of the form that saves the page's filter; "": it is saved already, or there is none
	Remove string // URL of the form that removes the page's view
}

// viewsOf returns the namespace's views for a list with the given filter.
func (v *visit) viewsOf(text string) (out viewsView) {
	for _, w := range v.ownViews() {
		on := w.Filter == text
		out.Views = append(out.Views, chip{Label: w.Name, URL: v.url("tasks", "?q="+url.QueryEscape(w.Filter)), On: on})
		if on {
			out.Remove = v.url("views", "remove", "?name="+url.QueryEscape(w.Name))
		}
	}
	if text != "" && out.Remove == "" {
		out.Save = v.url("views", "save", "?q="+url.QueryEscape(text))
	}
	return out
}

// ownViews returns the views of the page's namespace.
func (v *visit) ownViews() []savedView {
	return slices.DeleteFunc(savedViews(v.r), func(w savedView) bool { return w.Space != visitor.Namespace(v.r) })
}

func saveViewForm(v *visit) (*form.Form, error) {
	return &form.Form{Title: "Save this view", Text: "The view is stored in this browser for a year. It replaces a view of the same name.", Button: "Save", Back: "/tasks",
		Facts:  []form.Fact{{Name: "Filter", Value: format.Clip(v.query("q"), 300)}},
		Fields: []form.Field{{Name: "name", Label: "Name", Kind: "text", Required: true, Placeholder: "Failed payments"}, {Name: "q", Kind: "hidden", Value: v.query("q")}}}, nil
}

func doSaveView(v *visit) (done, error) {
	w := savedView{Space: visitor.Namespace(v.r), Name: v.value("name"), Filter: v.value("q")}
	if err := w.check(); err != nil {
		return done{}, err
	}
	if _, _, err := parseFilter(w.Filter, time.Now()); err != nil {
		return done{}, err
	}
	if err := v.keepViews(append(v.viewsWithout(w.Name), w)); err != nil {
		return done{}, err
	}
	return done{Said: "Saved the view " + w.Name + ".", Next: "/tasks?q=" + url.QueryEscape(w.Filter)}, nil
}

// viewsWithout returns all views but the namespace's one of the given name.
func (v *visit) viewsWithout(name string) []savedView {
	return slices.DeleteFunc(savedViews(v.r), func(w savedView) bool { return w.Space == visitor.Namespace(v.r) && w.Name == name })
}

func removeViewForm(v *visit) (*form.Form, error) {
	f := &form.Form{Title: "Remove this view", Text: "Only the saved view is removed. No task changes.", Button: "Remove", Back: "/tasks", Facts: []form.Fact{{Name: "View", Value: v.query("name")}},
		Fields: []form.Field{{Name: "name", Kind: "hidden", Value: v.query("name")}}}
	for _, w := range v.ownViews() {
		if w.Name == v.query("name") {
			f.Facts = append(f.Facts, form.Fact{Name: "Filter", Value: format.Clip(w.Filter, 300)})
		}
	}
	return f, nil
}

func doRemoveView(v *visit) (done, error) {
	name := v.value("name")
	if err := v.keepViews(v.viewsWithout(name)); err != nil {
		return done{}, err
	}
	return done{Said: "Removed the view " + name + ".", Next: "/tasks"}, nil
}

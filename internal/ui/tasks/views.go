package tasks

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
	"github.com/pawlq/pawl/internal/ui/visitor"
	"github.com/pawlq/pawl/internal/ui/web"
)

var viewActions = []web.Action{
	{Path: "/views/save", Nav: "/tasks", Form: saveViewForm, Do: doSaveView},
	{Path: "/views/remove", Nav: "/tasks", Form: removeViewForm, Do: doRemoveView},
}

// savedView is a named filter. Views are kept in a cookie: they work without scripts and API calls, and anybody who may
// read may save some. The server has no place for a visitor's settings, since there are no accounts.
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
		return format.BadField("name", "is required")
	case !utf8.ValidString(w.Name) || strings.ContainsFunc(w.Name, func(c rune) bool { return c < ' ' || format.IsBidiControl(c) }):
		return format.BadField("name", "contains invisible characters")
	case utf8.RuneCountInString(w.Name) > maxViewName:
		return format.BadField("name", "%d characters, at most %d are allowed", utf8.RuneCountInString(w.Name), maxViewName)
	case w.Filter == "":
		return format.BadField("q", "is required: filter the tasks first")
	case len(w.Filter) > maxViewFilter:
		return format.BadField("q", "%d bytes, at most %d are allowed", len(w.Filter), maxViewFilter)
	}
	return nil
}

func keepViews(req *web.Request, views []savedView) error {
	if len(views) == 0 {
		req.KeepCookie(viewsCookie, "")
		return nil
	}
	data, err := json.Marshal(views)
	if err != nil {
		return err
	}
	value := base64.RawURLEncoding.EncodeToString(data)
	if len(views) > maxViews || len(value) > maxViewBytes {
		return format.BadField("name", "%d views with %d bytes exceed the limit of %d views and %d bytes per browser: remove one first",
			len(views), len(value), maxViews, maxViewBytes)
	}
	req.KeepCookie(viewsCookie, value)
	return nil
}

// viewsView are the views shown above a list of tasks.
type viewsView struct {
	Views  []web.Chip
	Save   string // URL of the form that saves the page's filter; "": it is saved already, or there is none
	Remove string // URL of the form that removes the page's view
}

// viewsOf returns the namespace's views for a list with the given filter.
func viewsOf(req *web.Request, text string) (out viewsView) {
	for _, w := range ownViews(req) {
		on := w.Filter == text
		out.Views = append(out.Views, web.Chip{Label: w.Name, URL: req.URL("tasks", "?q="+url.QueryEscape(w.Filter)), On: on})
		if on {
			out.Remove = req.URL("views", "remove", "?name="+url.QueryEscape(w.Name))
		}
	}
	if text != "" && out.Remove == "" {
		out.Save = req.URL("views", "save", "?q="+url.QueryEscape(text))
	}
	return out
}

// ownViews returns the views of the page's namespace.
func ownViews(req *web.Request) []savedView {
	return slices.DeleteFunc(savedViews(req.HTTP), func(w savedView) bool { return w.Space != visitor.Namespace(req.HTTP) })
}

func saveViewForm(req *web.Request) (*form.Form, error) {
	return &form.Form{Title: "Save this view", Text: "The view is stored in this browser for a year. It replaces a view of the same name.",
		Button: "Save", Back: "/tasks", Facts: []form.Fact{{Name: "Filter", Value: format.Clip(req.Query("q"), 300)}},
		Fields: []form.Field{{Name: "name", Label: "Name", Kind: "text", Required: true, Placeholder: "Failed payments"},
			{Name: "q", Kind: "hidden", Value: req.Query("q")}}}, nil
}

func doSaveView(req *web.Request) (web.Done, error) {
	w := savedView{Space: visitor.Namespace(req.HTTP), Name: req.Value("name"), Filter: req.Hidden("q")}
	if err := w.check(); err != nil {
		return web.Done{}, err
	}
	if _, _, err := parseFilter(w.Filter, time.Now()); err != nil {
		return web.Done{}, err
	}
	if err := keepViews(req, append(viewsWithout(req, w.Name), w)); err != nil {
		return web.Done{}, err
	}
	return web.Done{Message: "Saved the view " + w.Name + ".", Next: "/tasks?q=" + url.QueryEscape(w.Filter)}, nil
}

// viewsWithout returns all views but the namespace's one of the given name.
func viewsWithout(req *web.Request, name string) []savedView {
	return slices.DeleteFunc(savedViews(req.HTTP), func(w savedView) bool {
		return w.Space == visitor.Namespace(req.HTTP) &&
			w.Name == name
	})
}

func removeViewForm(req *web.Request) (*form.Form, error) {
	f := &form.Form{Title: "Remove this view", Text: "Only the saved view is removed. No task changes.", Button: "Remove", Back: "/tasks",
		Facts: []form.Fact{{Name: "View", Value: req.Query("name")}}, Fields: []form.Field{{Name: "name", Kind: "hidden",
			Value: req.Query("name")}}}
	for _, w := range ownViews(req) {
		if w.Name == req.Query("name") {
			f.Facts = append(f.Facts, form.Fact{Name: "Filter", Value: format.Clip(w.Filter, 300)})
		}
	}
	return f, nil
}

func doRemoveView(req *web.Request) (web.Done, error) {
	name := req.Hidden("name")
	if err := keepViews(req, viewsWithout(req, name)); err != nil {
		return web.Done{}, err
	}
	return web.Done{Message: "Removed the view " + name + ".", Next: "/tasks"}, nil
}

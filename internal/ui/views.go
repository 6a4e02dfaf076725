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
)

var viewActions = []action{
	{path: "/views/save", nav: "/tasks", form: saveViewForm, do: doSaveView},
	{path: "/views/remove", nav: "/tasks", form: removeViewForm, do: doRemoveView},
}

// savedView is a filter with a name. Views are kept in a cookie: they work without scripts and without a call, and anybody who may look
// may keep some. Nothing on the server is a place for settings of a visitor, who has no account there.
type savedView struct {
	Space  string `json:"s,omitempty"` // its namespace, as addresses have it
	Name   string `json:"n"`
	Filter string `json:"f"`
}

// viewsCookie holds the views of this browser.
const viewsCookie = "pawl-views"

// Bounds of views: browsers keep 4 KiB of a cookie.
const (
	maxViews      = 20 // of all namespaces
	maxViewName   = 40 // characters
	maxViewFilter = 1 << 10
	maxViewBytes  = 3500 // of the cookie
)

// savedViews are those of this browser, of all namespaces.
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

// check refuses what can't be a view.
func (w savedView) check() error {
	switch {
	case w.Name == "":
		return badField("name", "is needed")
	case !utf8.ValidString(w.Name) || strings.ContainsFunc(w.Name, func(c rune) bool { return c < ' ' || isTurn(c) }):
		return badField("name", "has characters that can't be seen")
	case utf8.RuneCountInString(w.Name) > maxViewName:
		return badField("name", "%d characters, at most %d are allowed", utf8.RuneCountInString(w.Name), maxViewName)
	case w.Filter == "":
		return badField("q", "is needed: filter the tasks first")
	case len(w.Filter) > maxViewFilter:
		return badField("q", "%d bytes, a view has at most %d", len(w.Filter), maxViewFilter)
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
		return badField("name", "%d views with %d bytes are more than a browser keeps, which is %d views and %d bytes: remove one first", len(views), len(value), maxViews, maxViewBytes)
	}
	v.keep(viewsCookie, value)
	return nil
}

// viewsView are the views beside a list of tasks.
type viewsView struct {
	Views  []chip
	Save   string // address of the form that saves the filter of the page; "": it is saved, or there is none
	Remove string // address of the form that removes the view of the page
}

// viewsOf are the views of the namespace, beside a list that this text filters.
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

// ownViews are those of the namespace of the page.
func (v *visit) ownViews() []savedView {
	return slices.DeleteFunc(savedViews(v.r), func(w savedView) bool { return w.Space != spaceOf(v.r) })
}

func saveViewForm(v *visit) (*form, error) {
	return &form{Title: "Save this view", Text: "It is kept in this browser, for a year. One of the same name is replaced.", Button: "Save", Back: "/tasks",
		Facts:  []fact{{"Filter", clip(v.query("q"), 300)}},
		Fields: []field{{Name: "name", Label: "Name", Kind: "text", Required: true, Placeholder: "Failed payments"}, {Name: "q", Kind: "hidden", Value: v.query("q")}}}, nil
}

func doSaveView(v *visit) (done, error) {
	w := savedView{Space: spaceOf(v.r), Name: v.value("name"), Filter: v.value("q")}
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

// viewsWithout are all views but the one of the namespace that has this name.
func (v *visit) viewsWithout(name string) []savedView {
	return slices.DeleteFunc(savedViews(v.r), func(w savedView) bool { return w.Space == spaceOf(v.r) && w.Name == name })
}

func removeViewForm(v *visit) (*form, error) {
	f := &form{Title: "Remove this view", Text: "No task changes.", Button: "Remove", Back: "/tasks", Facts: []fact{{"View", v.query("name")}},
		Fields: []field{{Name: "name", Kind: "hidden", Value: v.query("name")}}}
	for _, w := range v.ownViews() {
		if w.Name == v.query("name") {
			f.Facts = append(f.Facts, fact{"Filter", clip(w.Filter, 300)})
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

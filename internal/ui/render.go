package ui

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"html/template"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/problem"
	"github.com/pawlq/pawl/internal/ui/visitor"
	"github.com/pawlq/pawl/pawltype"
)

//go:embed templates/*.html
var templateFiles embed.FS

// shared are the templates used by all pages: the layout, and parts such as a badge.
var shared = []string{"templates/layout.html", "templates/frame.html", "templates/parts.html", "templates/chart.html", "templates/workflow.html", "templates/views.html"}

// parse parses all templates. A page is one file, which defines "head" and "live".
func (u *UI) parse() map[string]*template.Template {
	frame := template.Must(template.New("").Funcs(u.funcs()).ParseFS(templateFiles, shared...))
	names, err := templateFiles.ReadDir("templates")
	if err != nil {
		panic(err) // they are embedded in the binary
	}
	all := map[string]*template.Template{}
	for _, f := range names {
		name := strings.TrimSuffix(f.Name(), path.Ext(f.Name()))
		if slices.Contains(shared, "templates/"+f.Name()) {
			continue
		}
		all[name] = template.Must(template.Must(frame.Clone()).ParseFS(templateFiles, "templates/"+f.Name()))
	}
	return all
}

const (
	// slowRefresh is how often a page is refreshed when nothing happens, since ages, rates and other people's changes alter it.
	slowRefresh = 10 * time.Second
	// quickRefresh is slowRefresh for pages that no event announces changes of.
	quickRefresh = 4 * time.Second
)

// frame is the data of the layout around a page.
type frame struct {
	Title string
	Nav   []navItem
	Here  string // the page's own URL, for refreshes
	Said  string // message from the previous page
	Theme string // "light", "dark"; "": the system's
	Name  string // the visitor's self-chosen name
	Query string // in the search field
	Still bool   // it is never refreshed
	Watch string // URL of the stream of changes; "": none
	Beat  int64  // maximum refresh interval, in ms
	Bare  bool   // without menu and search: the visitor is not logged in
	// NoKeys disables single-letter shortcuts.
	NoKeys bool
	Me     *admin.Identity
	Space  string // the namespace, if there are several
	Can    string // the visitor's rights
	// Enqueues: this is the page for enqueuing a task.
	Enqueues bool
	Data     any
}

func (v *visit) frame(s *screen) *frame {
	f := &frame{Title: s.Title, Nav: v.addCounts(v.menu()), Here: v.base + v.here(), Said: v.takeFlash(), Theme: themeOf(v.r), Name: visitor.Name(v.r), Still: s.Still, NoKeys: noKeys(v.r), Me: v.me, Can: visitor.Rights(v.me), Enqueues: v.nav == "/enqueue", Data: s.Data}
	if v.several() {
		f.Space = v.me.Namespace
	}
	f.Beat = slowRefresh.Milliseconds()
	if s.Watch != nil {
		f.Watch = v.base + s.Watch.Address()
	} else {
		f.Beat = quickRefresh.Milliseconds()
	}
	if s.Beat > 0 {
		f.Beat = s.Beat.Milliseconds()
	}
	if v.nav == "/tasks" {
		f.Query = v.query("q")
	}
	return f
}

// render writes a part of a page. It renders all of it before writing the first byte, so that a failure can still be reported.
func (v *visit) render(status int, file, part string, data any) error {
	var b bytes.Buffer
	if err := v.templates()[file].ExecuteTemplate(&b, part, data); err != nil {
		return err
	}
	h := v.w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "HX-Request, Accept-Encoding")
	page := format.ShowBidiControls(bytes.ReplaceAll(b.Bytes(), []byte(baseMark), []byte(v.base)))
	if status == http.StatusOK && v.partial() && v.r.Method == http.MethodGet {
		tag := tagOf(page)
		h.Set("ETag", tag)
		if v.r.Header.Get("If-None-Match") == tag {
			v.w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	if file != "secret" && len(page) >= leastZipped && mayZip(v.r) {
		h.Set("Content-Encoding", "gzip")
		page = zip(page)
	}
	v.w.WriteHeader(status)
	_, _ = v.w.Write(page) // on failure the client is gone
	return nil
}

// errorView is an error page.
type errorView struct {
	problem.Problem
	Pages   []navItem // that the visitor may see instead
	Cluster []string  // problems of the cluster, which may be the cause
}

// titleOf returns the title of an error page.
func titleOf(status int) string {
	switch status {
	case http.StatusNotFound:
		return "Not found"
	case http.StatusForbidden:
		return "Not allowed"
	case http.StatusUnauthorized:
		return "Log in"
	case http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return "Not available"
	case http.StatusInternalServerError:
		return "Internal error"
	}
	return "Invalid request"
}

// troubles returns the cluster's problems, if the visitor may see them.
func (v *visit) troubles() []string {
	ctx, cancel := context.WithTimeout(v.r.Context(), troubleTime)
	defer cancel()
	if v.client == nil {
		return nil
	}
	c, err := v.admin().Cluster().Status(ctx)
	if err != nil {
		return nil
	}
	return c.Problems
}

// troubleTime bounds how long a page that is already late waits for them.
const troubleTime = 3 * time.Second

// fail shows an error page.
func (v *visit) fail(err error) {
	p := errorView{Problem: problem.Of(err)}
	if p.Code == "internal" {
		v.log.Error("a page of the UI could not be rendered", "path", v.r.URL.Path, "error", err)
	}
	p.Title = titleOf(p.Status)
	part, data := "live", any(&p)
	if !v.partial() {
		v.who()
		if errors.Is(err, pawltype.ErrUnavailable) {
			p.Cluster = v.troubles()
		} else {
			p.Pages = v.menu()
		}
		part, data = "layout", v.frame(&screen{Title: p.Title, Data: &p, Still: v.left})
	}
	if err := v.render(p.Status, "error", part, data); err != nil {
		v.log.Error("a page of the UI could not be rendered", "path", v.r.URL.Path, "error", err)
		http.Error(v.w, "internal error", http.StatusInternalServerError)
	}
}

package web

import (
	"bytes"
	"embed"
	"html/template"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"

	"github.com/pawlq/pawl/internal/ui/format"
)

//go:embed templates
var templateFiles embed.FS

// partFiles are the templates that several pages share: the layout, and parts such as a badge.
const partFiles = "templates/parts/*.html"

// Templates are the templates of all pages.
type Templates struct {
	byName func() map[string]*template.Template // parsed for the first page
}

// NewTemplates returns the templates of some pages, whose URLs begin with base.
func NewTemplates(base string, assets *Files, sets ...Set) *Templates {
	return &Templates{sync.OnceValue(func() map[string]*template.Template {
		shared := template.Must(template.New("").Funcs(funcs(base, assets)).ParseFS(templateFiles, partFiles))
		all := map[string]*template.Template{}
		addTemplates(all, shared, templateFiles)
		for _, set := range sets {
			addTemplates(all, shared, set.Templates)
		}
		return all
	})}
}

// Execute writes a part of a page, such as "live": the page is the name of its file in templates/, without .html.
func (t *Templates) Execute(w io.Writer, page, part string, data any) error {
	return t.byName()[page].ExecuteTemplate(w, part, data)
}

// addTemplates parses the templates in files. A page is one file, which defines "head" and "live".
func addTemplates(all map[string]*template.Template, shared *template.Template, files fs.FS) {
	if parts := match(files, partFiles); len(parts) > 0 {
		shared = template.Must(template.Must(shared.Clone()).ParseFS(files, parts...))
	}
	for _, file := range match(files, "templates/*.html") {
		name := strings.TrimSuffix(path.Base(file), path.Ext(file))
		if all[name] != nil {
			panic("two templates are named " + name)
		}
		all[name] = template.Must(template.Must(shared.Clone()).ParseFS(files, file))
	}
}

// match returns the names of files that are embedded in the binary.
func match(files fs.FS, pattern string) []string {
	names, err := fs.Glob(files, pattern)
	if err != nil {
		panic(err) // the pattern is valid
	}
	return names
}

// Render writes a part of a page, which is a file in templates/. It renders all of it before writing the first byte, so
// that a failure can still be reported.
func (req *Request) Render(status int, file, part string, data any) error {
	var b bytes.Buffer
	if err := req.server.templates.Execute(&b, file, part, data); err != nil {
		return err
	}
	h := req.Writer.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "HX-Request, Accept-Encoding")
	page := format.ShowBidiControls(bytes.ReplaceAll(b.Bytes(), []byte(baseMark), []byte(req.base)))
	if status == http.StatusOK && req.partial() && req.HTTP.Method == http.MethodGet {
		tag := tagOf(page)
		h.Set("ETag", tag)
		if req.HTTP.Header.Get("If-None-Match") == tag {
			req.Writer.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	if file != "secret" && len(page) >= leastZipped && mayZip(req.HTTP) {
		h.Set("Content-Encoding", "gzip")
		page = zip(page)
	}
	req.Writer.WriteHeader(status)
	_, _ = req.Writer.Write(page) // on failure the client is gone
	return nil
}

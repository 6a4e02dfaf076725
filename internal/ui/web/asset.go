package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
)

//go:embed static
var staticFiles embed.FS

// file is a file that pages load.
type file struct {
	plain, zipped []byte // zipped is nil if compression saves nothing
	kind          string
}

// Files are the files that pages load. Their URLs contain a checksum of the content, so that browsers can cache them forever.
type Files struct {
	base   string
	byName map[string]string // path in static/ to path in a URL
	files  map[string]file   // by path in a URL
}

// NewFiles returns the files, with URLs below base, which is the prefix of all pages.
func NewFiles(base string) *Files {
	a := readAll()
	return &Files{base: base, byName: a.byName, files: a.files}
}

// readAll reads and compresses the files once per process, however many nodes tests start in it.
var readAll = sync.OnceValue(func() *Files {
	a := &Files{byName: map[string]string{}, files: map[string]file{}}
	var sheet []byte
	err := fs.WalkDir(staticFiles, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := staticFiles.ReadFile(name)
		if name = strings.TrimPrefix(name, "static/"); name == stylesheet {
			sheet = data
			return err
		}
		a.add(name, data)
		return err
	})
	if err != nil {
		panic(err) // they are embedded in the binary
	}
	a.add(stylesheet, a.link(sheet))
	return a
})

// stylesheet refers to other files, and so is read after them.
const stylesheet = "app.css"

// link replaces file names in a stylesheet with their URLs.
func (a *Files) link(sheet []byte) []byte {
	for name, at := range a.byName {
		sheet = bytes.ReplaceAll(sheet, []byte("url("+name+")"), []byte("url("+at+")"))
	}
	return sheet
}

func (a *Files) add(name string, data []byte) {
	sum := sha256.Sum256(data)
	ext := path.Ext(name)
	at := strings.TrimSuffix(name, ext) + "." + hex.EncodeToString(sum[:6]) + ext
	f := file{plain: data, kind: kindOf(ext)}
	if zipped := compress(data); len(zipped) < len(data)*9/10 {
		f.zipped = zipped
	}
	a.byName[name], a.files[at] = at, f
}

// kindOf returns the content type for a file extension. It does not depend on the machine's MIME types.
func kindOf(ext string) string {
	switch ext {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".woff2":
		return "font/woff2"
	case ".txt":
		return "text/plain; charset=utf-8"
	}
	return mime.TypeByExtension(ext)
}

func compress(data []byte) []byte {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		panic(err)
	}
	_, _ = w.Write(data) // into memory: never fails
	_ = w.Close()
	return b.Bytes()
}

// URL returns the URL of a file in static/.
func (a *Files) URL(name string) string {
	at, ok := a.byName[name]
	if !ok {
		panic("ui: no such file: " + name)
	}
	return a.base + "/static/" + at
}

// Serve answers a request for a file, which is the part "name" of the URL's path.
func (a *Files) Serve(w http.ResponseWriter, r *http.Request) {
	f, ok := a.files[r.PathValue("name")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	body := f.plain
	if f.zipped != nil {
		h.Set("Vary", "Accept-Encoding")
		if AcceptsGzip(r) {
			h.Set("Content-Encoding", "gzip")
			body = f.zipped
		}
	}
	_, _ = w.Write(body) // on failure the client is gone
}

// AcceptsGzip reports whether the client accepts gzip.
func AcceptsGzip(r *http.Request) bool {
	for _, coding := range strings.Split(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, quality, _ := strings.Cut(coding, ";")
		if strings.TrimSpace(name) == "gzip" {
			return strings.Trim(strings.TrimPrefix(strings.TrimSpace(quality), "q="), "0.") != "" || quality == ""
		}
	}
	return false
}

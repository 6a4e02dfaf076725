package web

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"time"

	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/pawltype"
)

const (
	// maxForm is larger than a form with a payload of 1 MiB.
	maxForm = 4 << 20
	// maxAnonymousForm is larger than a login, and most other forms.
	maxAnonymousForm = 4 << 10
)

// formLimit is the maximum size of a form: little is read from an unknown visitor.
func (req *Request) formLimit() int64 {
	if req.me == nil {
		return maxAnonymousForm
	}
	return maxForm
}

// readForm reads the form's input. The server limits how long that may take.
func (req *Request) readForm() error {
	kind, _, err := mime.ParseMediaType(req.HTTP.Header.Get("Content-Type"))
	if err != nil || kind != "application/x-www-form-urlencoded" {
		return &pawltype.Error{Code: "invalid_argument", Field: "Content-Type", Message: "a form is application/x-www-form-urlencoded"}
	}
	limit := req.formLimit()
	if req.HTTP.ContentLength > limit {
		req.Writer.Header().Set("Connection", "close") // otherwise the server would read the rest after the response
		return tooLong(limit)
	}
	req.HTTP.Body = http.MaxBytesReader(req.Writer, req.HTTP.Body, limit)
	if err := req.HTTP.ParseForm(); err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return tooLong(limit)
		}
		return &pawltype.Error{Code: "invalid_argument", Message: "the form is incomplete or malformed"}
	}
	_ = http.NewResponseController(req.Writer).SetReadDeadline(time.Time{}) // otherwise it would cancel the context of the action
	return nil
}

func tooLong(limit int64) error {
	return &pawltype.Error{Code: "payload_too_large", Message: fmt.Sprintf("the form is too large: at most %d KiB", limit>>10)}
}

// Value returns the value of a field, trimmed and with LF line ends.
func (req *Request) Value(name string) string {
	return form.TidyValue(req.HTTP.PostForm.Get(name))
}

// Hidden returns the value of a hidden field, as the form had it.
func (req *Request) Hidden(name string) string {
	return form.HiddenValue(req.HTTP.PostForm.Get(name))
}

// Reader returns a reader of the submitted form, which showed no values.
func (req *Request) Reader() *form.Reader { return form.NewReader(req.HTTP.PostForm, req.Now) }

// Edits returns a reader of the submitted form, which showed those of f.
func (req *Request) Edits(f *form.Form) *form.Reader {
	return form.NewEdits(f, req.HTTP.PostForm, req.Now)
}

func (s *Server) showForm(req *Request, status int, f *form.Form) error {
	if f.Action == "" {
		f.Action = req.Here()
	}
	if req.me != nil && req.me.TokenRequired {
		f.Visitor = req.me.Name
	}
	return s.showPart(req, status, "form", &Screen{Title: f.Title, Data: f, NoRefresh: true})
}

// showPart shows something on top of a page if a script asks for it, and as a page of its own otherwise.
func (s *Server) showPart(req *Request, status int, file string, content *Screen) error {
	if req.partial() {
		return req.Render(status, file, "live", content.Data)
	}
	return req.Render(status, file, "layout", s.frame(req, content))
}

// Unchanged rebuilds a form from the current state, and returns form.ErrStale if the submitted form was built from another.
func (req *Request) Unchanged(make func(*Request) (*form.Form, error)) (*form.Form, error) {
	version, err := req.Version()
	if err != nil {
		return nil, err
	}
	f, err := make(req)
	if err == nil && f.Version != version {
		err = form.ErrStale
	}
	return f, err
}

// Version returns the version that the submitted form edits.
func (req *Request) Version() (string, error) {
	version := req.Value(form.VersionField)
	if version == "" {
		return "", format.BadField(form.VersionField, "the form does not say which version it is based on: open it again")
	}
	return version, nil
}

// showFallback responds to a refused form that can't be rebuilt because the API does not answer. A script gets only the
// error, and leaves the form as it is; without scripts, a form is shown with the input that was sent.
func (s *Server) showFallback(req *Request, a Action, err error) error {
	f := form.Fallback(req.HTTP.PostForm, a.Nav)
	f.Refuse(err)
	if !req.partial() {
		return s.showForm(req, format.StatusOf(err), f)
	}
	h := req.Writer.Header()
	h.Set("HX-Retarget", "find .refusal")
	h.Set("HX-Reswap", "innerHTML")
	return req.Render(format.StatusOf(err), "form", "refusal", f.Refused)
}

package ui

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"time"

	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/problem"
	"github.com/pawlq/pawl/pawltype"
)

const (
	// maxForm is larger than a form with a payload of 1 MiB.
	maxForm = 4 << 20
	// maxAnonymousForm is larger than a login, and most other forms.
	maxAnonymousForm = 4 << 10
)

// formLimit is the maximum size of a form: little is read from an unknown visitor.
func (v *visit) formLimit() int64 {
	if v.me == nil {
		return maxAnonymousForm
	}
	return maxForm
}

// readForm reads the form's input. The server limits how long that may take.
func (v *visit) readForm() error {
	kind, _, err := mime.ParseMediaType(v.r.Header.Get("Content-Type"))
	if err != nil || kind != "application/x-www-form-urlencoded" {
		return &pawltype.Error{Code: "invalid_argument", Field: "Content-Type", Message: "a form is application/x-www-form-urlencoded"}
	}
	limit := v.formLimit()
	if v.r.ContentLength > limit {
		v.w.Header().Set("Connection", "close") // otherwise the server would read the rest after the response
		return tooLong(limit)
	}
	v.r.Body = http.MaxBytesReader(v.w, v.r.Body, limit)
	if err := v.r.ParseForm(); err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return tooLong(limit)
		}
		return &pawltype.Error{Code: "invalid_argument", Message: "the form is incomplete or malformed"}
	}
	_ = http.NewResponseController(v.w).SetReadDeadline(time.Time{}) // otherwise it would cancel the context of the action
	return nil
}

func tooLong(limit int64) error {
	return &pawltype.Error{Code: "payload_too_large", Message: fmt.Sprintf("the form is too large: at most %d KiB", limit>>10)}
}

// value returns the value of a field, trimmed and with LF line ends.
func (v *visit) value(name string) string {
	return form.TidyValue(v.r.PostForm.Get(name))
}

// reader returns a reader of the submitted form.
func (v *visit) reader() *form.Reader { return form.NewReader(v.r.PostForm, v.now) }

func (v *visit) showForm(status int, f *form.Form) error {
	if f.Action == "" {
		f.Action = v.base + v.here()
	}
	return v.showPart(status, "form", &screen{Title: f.Title, Data: f, Still: true})
}

// showPart shows something on top of a page if a script asks for it, and as a page of its own otherwise.
func (v *visit) showPart(status int, file string, s *screen) error {
	if v.partial() {
		return v.render(status, file, "live", s.Data)
	}
	return v.render(status, file, "layout", v.frame(s))
}

// unchanged rebuilds a form from the current state, and returns errStale if the submitted form was built from another.
func (v *visit) unchanged(make func(*visit) (*form.Form, error)) (*form.Form, error) {
	version, err := v.version()
	if err != nil {
		return nil, err
	}
	f, err := make(v)
	if err == nil && f.Version != version {
		err = form.ErrStale
	}
	return f, err
}

// version returns the version that the submitted form edits.
func (v *visit) version() (string, error) {
	version := v.value(form.VersionField)
	if version == "" {
		return "", problem.BadField(form.VersionField, "the form does not say which version it is based on: open it again")
	}
	return version, nil
}

// showFallback responds to a refused form that can't be rebuilt because the API does not answer. A script gets only the error, and leaves the form as
// it is; without scripts, a form is shown with the input that was sent.
func (v *visit) showFallback(a action, err error) error {
	f := form.Fallback(v.r.PostForm, a.nav)
	f.Refuse(err)
	if !v.partial() {
		return v.showForm(problem.Status(err), f)
	}
	h := v.w.Header()
	h.Set("HX-Retarget", "find .refusal")
	h.Set("HX-Reswap", "innerHTML")
	return v.render(problem.Status(err), "form", "refusal", f.Refused)
}

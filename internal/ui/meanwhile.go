package ui

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/pawlq/pawl/pawltype"
)

// What a form edits can be edited by others while it is filled in. So a form takes along which version it edits, which the API
// checks, and how its fields stood when it was shown. If it comes back, those that nobody touched here are as they stand now, and
// where both sides changed the same, both are shown.

// The names of the hidden fields that keep this.
const (
	versionField = "version"
	seenField    = "seen"
)

// staleForm says what the page shows after it.
var staleForm = problem{Title: "Not saved", Message: "someone else has changed this since you opened it. Their changes are marked below: review them, then save again"}

// mark is of one value of a field. It tells values apart and need not be safe: whoever sends it fills in the form, too.
func mark(value string) string {
	sum := sha256.Sum256([]byte(value))
	return base64.RawURLEncoding.EncodeToString(sum[:6])
}

// shown is what browsers send back of a field that nobody touches.
func (f *field) shown() string {
	switch {
	case f.Kind == "ticks":
		var on []string
		for _, t := range f.Ticks {
			if t.On {
				on = append(on, t.Value)
			}
		}
		return strings.Join(on, ", ")
	case f.Kind == "choice" && len(f.Options) > 0 && !slices.ContainsFunc(f.Options, func(o option) bool { return o.Value == f.Value }):
		return f.Options[0].Value
	}
	return tidyValue(f.Value)
}

// sent is what has come back of it.
func (f *field) sent(filled url.Values) string {
	if f.Kind != "ticks" {
		return tidyValue(filled.Get(f.Name))
	}
	var on []string
	for _, t := range f.Ticks {
		if slices.Contains(filled[f.Name], t.Value) {
			on = append(on, t.Value)
		}
	}
	return strings.Join(on, ", ")
}

// said is a value in the words of the form.
func (f *field) said(value string) string {
	for _, o := range f.Options {
		if f.Kind == "choice" && o.Value == value {
			return o.Label
		}
	}
	switch {
	case f.Kind == "tick" && value == "":
		return "off"
	case f.Kind == "tick":
		return "on"
	case f.Kind == "ticks" && value == "":
		return "none"
	case value == "":
		return "nothing"
	}
	return value
}

// remember has a form that edits something take along how it stands now. It is called before anything is filled in.
func (f *form) remember() error {
	if f.Version == "" {
		return nil
	}
	seen := map[string]string{}
	for i := range f.Fields {
		if at := &f.Fields[i]; at.Kind != "hidden" {
			seen[at.Name] = mark(at.shown())
		}
	}
	data, err := json.Marshal(seen)
	if err != nil {
		return err
	}
	f.Fields = append(f.Fields, field{Name: versionField, Kind: "hidden", Value: f.Version}, field{Name: seenField, Kind: "hidden", Value: string(data)})
	return nil
}

// merge puts in what was filled in, as far as it was changed here, and says what others have changed meanwhile.
func (f *form) merge(filled url.Values) {
	seen := map[string]string{}
	if json.Unmarshal([]byte(filled.Get(seenField)), &seen) != nil {
		seen = nil // of nothing is known how it was
	}
	now := *f
	now.Fields = slices.Clone(f.Fields)
	for i := range now.Fields {
		now.Fields[i].Ticks = slices.Clone(f.Fields[i].Ticks)
	}
	f.refill(filled)
	for i := range f.Fields {
		at, theirs := &f.Fields[i], &now.Fields[i]
		was, known := seen[at.Name]
		mine, value := theirs.sent(filled), theirs.shown()
		if at.Kind == "hidden" || !known || mark(value) == was || mine == value {
			continue
		}
		if mark(mine) == was {
			*at = *theirs
			at.Meanwhile = "Someone else changed this in the meantime. When you opened the form it was: " + clip(at.said(mine), maxMeanwhile)
			continue
		}
		at.Meanwhile, at.Theirs = "Someone else changed this too. Saving replaces their value with yours, above. Theirs:", theirs.said(value)
	}
}

// maxMeanwhile bounds what is told of a value that was.
const maxMeanwhile = 200

// stale tells whether a form was refused because something else than what it showed is there now.
func (f *form) stale(err error) bool { return f.Version != "" && errors.Is(err, pawltype.ErrConflict) }

// errStale refuses a form that was made from something else than what is there.
var errStale error = &pawltype.Error{Code: "conflict", Message: staleForm.Message}

// asShown is the version of what has none in the API: how all fields stand.
func (f *form) asShown() string {
	var all strings.Builder
	for i := range f.Fields {
		all.WriteString(mark(f.Fields[i].shown()))
	}
	return mark(all.String())
}

// touched says whether something else has come back of a field than what it shows.
func (f *form) touched(filled url.Values, name string) bool {
	at := f.fieldOf(name)
	return at != nil && at.sent(filled) != at.shown()
}

// unchanged makes the form anew from what is there, and refuses the one that was sent if that was made from something else.
func (v *visit) unchanged(make func(*visit) (*form, error)) (*form, error) {
	version, err := v.version()
	if err != nil {
		return nil, err
	}
	f, err := make(v)
	if err == nil && f.Version != version {
		err = errStale
	}
	return f, err
}

// version is which version of something a form edits.
func (v *visit) version() (string, error) {
	version := v.value(versionField)
	if version == "" {
		return "", badField(versionField, "the form does not say which version it is based on: open it again")
	}
	return version, nil
}

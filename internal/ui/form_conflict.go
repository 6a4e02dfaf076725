package ui

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/pawltype"
)

// Others may edit the same thing while a form is being filled in. So a form carries the version that it edits, which the API checks, and the values
// of its fields as they were shown. When it comes back, fields that the visitor didn't touch have their current value; where both sides changed a
// field, both values are shown.

// Names of the hidden fields for this.
const (
	versionField = "version"
	seenField    = "seen"
)

// staleForm is the problem shown when others have made changes.
var staleForm = problem{Title: "Not saved", Message: "someone else has changed this since you opened it. Their changes are marked below: review them, then save again"}

// mark returns a short hash of a field's value. It only tells values apart and need not be secure: whoever sends it fills in the form, too.
func mark(value string) string {
	sum := sha256.Sum256([]byte(value))
	return base64.RawURLEncoding.EncodeToString(sum[:6])
}

// shown returns what browsers submit for a field that nobody touches.
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

// sent returns what was submitted for the field.
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

// said returns a value as the form words it.
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

// addVersion makes a form that edits something carry its version and its current values. It must be called before input is filled in.
func (f *form) addVersion() error {
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

// merge fills in the input that the visitor changed, and notes what others have changed meanwhile.
func (f *form) merge(filled url.Values) {
	seen := map[string]string{}
	if json.Unmarshal([]byte(filled.Get(seenField)), &seen) != nil {
		seen = nil // unknown what the form showed
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
			at.Meanwhile = "Someone else changed this in the meantime. When you opened the form it was: " + format.Clip(at.said(mine), maxPrevious)
			continue
		}
		at.Meanwhile, at.Theirs = "Someone else changed this too. Saving replaces their value with yours, above. Theirs:", theirs.said(value)
	}
}

// maxPrevious is how much of a previous value is shown, in characters.
const maxPrevious = 200

// stale reports whether a form was refused because what it edits has changed since it was shown.
func (f *form) stale(err error) bool { return f.Version != "" && errors.Is(err, pawltype.ErrConflict) }

// errStale refuses a form whose subject has changed since it was shown.
var errStale error = &pawltype.Error{Code: "conflict", Message: staleForm.Message}

// contentVersion returns a version for what has none in the API: a hash of all fields.
func (f *form) contentVersion() string {
	var all strings.Builder
	for i := range f.Fields {
		all.WriteString(mark(f.Fields[i].shown()))
	}
	return mark(all.String())
}

// touched reports whether the submitted value of a field differs from the one it shows.
func (f *form) touched(filled url.Values, name string) bool {
	at := f.fieldOf(name)
	return at != nil && at.sent(filled) != at.shown()
}

// unchanged rebuilds a form from the current state, and returns errStale if the submitted form was built from another.
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

// version returns the version that the submitted form edits.
func (v *visit) version() (string, error) {
	version := v.value(versionField)
	if version == "" {
		return "", badField(versionField, "the form does not say which version it is based on: open it again")
	}
	return version, nil
}

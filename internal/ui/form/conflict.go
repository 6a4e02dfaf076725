package form

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

// Others may edit the same thing while a form is being filled in. So a form carries the version that it edits, which
// the API checks, and the values of its fields as they were shown. When it comes back, fields that the visitor didn't
// touch have their current value; where both sides changed a field, both values are shown.

// Names of hidden fields.
const (
	VersionField = "version"
	seenField    = "seen"
	// VisitorField says who filled in the form.
	VisitorField = "visitor"
)

// changedByOthers is the problem shown when others have made changes.
var changedByOthers = format.Problem{Title: "Not saved",
	Message: "someone else has changed this since you opened it. Their changes are marked below: review them, then save again"}

// hash returns a short hash of a field's value. It only tells values apart and need not be secure: whoever sends it fills in the form, too.
func hash(value string) string {
	sum := sha256.Sum256([]byte(value))
	return base64.RawURLEncoding.EncodeToString(sum[:6])
}

// asSent returns what browsers submit for a value: they change line ends, and those of a single line are lost.
func asSent(kind, value string) string {
	value = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\x00", "\uFFFD").Replace(value)
	switch kind {
	case "area", "json", "hidden":
		return value
	}
	return strings.ReplaceAll(value, "\n", "")
}

// Hidden returns the value of a hidden field as the page has it: browsers change carriage returns, and HTML has no NUL.
func (f Field) Hidden() string {
	if strings.HasPrefix(f.Value, "%") || strings.ContainsAny(f.Value, "\r\x00") {
		return "%" + url.QueryEscape(f.Value)
	}
	return f.Value
}

// HiddenValue returns the value of a hidden field from what was submitted for it.
func HiddenValue(sent string) string {
	if escaped, ok := strings.CutPrefix(sent, "%"); ok {
		if value, err := url.QueryUnescape(escaped); err == nil {
			return value
		}
	}
	return strings.ReplaceAll(sent, "\r\n", "\n")
}

// shown returns what browsers submit for a field that nobody touches.
func (f *Field) shown() string {
	switch {
	case f.Kind == "ticks":
		var on []string
		for _, t := range f.Checkboxes {
			if t.Checked {
				on = append(on, t.Value)
			}
		}
		return strings.Join(on, ", ")
	case f.Kind == "choice" && len(f.Options) > 0 && !slices.ContainsFunc(f.Options, func(o Option) bool { return o.Value == f.Value }):
		return f.Options[0].Value
	}
	return asSent(f.Kind, f.Value)
}

// sent returns what was submitted for the field.
func (f *Field) sent(filled url.Values) string {
	if f.Kind != "ticks" {
		return asSent(f.Kind, filled.Get(f.Name))
	}
	var on []string
	for _, t := range f.Checkboxes {
		if slices.Contains(filled[f.Name], t.Value) {
			on = append(on, t.Value)
		}
	}
	return strings.Join(on, ", ")
}

// words returns a value as the form words it.
func (f *Field) words(value string) string {
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

// AddVersion makes a form that edits something carry its version and its current values. It must be called before input is filled in.
func (f *Form) AddVersion() error {
	if f.Version == "" {
		return nil
	}
	seen := map[string]string{}
	for i := range f.Fields {
		if at := &f.Fields[i]; at.Kind != "hidden" {
			seen[at.Name] = hash(at.shown())
		}
	}
	data, err := json.Marshal(seen)
	if err != nil {
		return err
	}
	f.Fields = append(f.Fields, Field{Name: VersionField, Kind: "hidden", Value: f.Version}, Field{Name: seenField, Kind: "hidden",
		Value: string(data)})
	return nil
}

// merge fills in the input that the visitor changed, and notes what others have changed meanwhile.
func (f *Form) merge(filled url.Values) {
	seen := map[string]string{}
	if json.Unmarshal([]byte(filled.Get(seenField)), &seen) != nil {
		seen = nil // unknown what the form showed
	}
	now := *f
	now.Fields = slices.Clone(f.Fields)
	for i := range now.Fields {
		now.Fields[i].Checkboxes = slices.Clone(f.Fields[i].Checkboxes)
	}
	f.fill(filled)
	for i := range f.Fields {
		at, theirs := &f.Fields[i], &now.Fields[i]
		was, known := seen[at.Name]
		mine, value := theirs.sent(filled), theirs.shown()
		if at.Kind == "hidden" || !known || hash(value) == was || mine == value {
			continue
		}
		if hash(mine) == was {
			*at = *theirs
			at.Changed = "Someone else changed this in the meantime. When you opened the form it was: " +
				format.Clip(at.words(mine), maxPrevious)
			continue
		}
		at.Changed, at.OtherValue = "Someone else changed this too. Saving replaces their value with yours, above. Theirs:",
			theirs.words(value)
	}
}

// maxPrevious is how much of a previous value is shown, in characters.
const maxPrevious = 200

// stale reports whether a form was refused because what it edits has changed since it was shown.
func (f *Form) stale(err error) bool { return f.Version != "" && errors.Is(err, pawltype.ErrConflict) }

// ErrStale refuses a form whose subject has changed since it was shown.
var ErrStale error = &pawltype.Error{Code: "conflict", Message: changedByOthers.Message}

// ContentVersion returns a version for what has none in the API: a hash of all fields.
func (f *Form) ContentVersion() string {
	var all strings.Builder
	for i := range f.Fields {
		all.WriteString(hash(f.Fields[i].shown()))
	}
	return hash(all.String())
}

// touched reports whether the submitted value of a field differs from the one it shows. Browsers send nothing for an empty checkbox.
func (f *Field) touched(filled url.Values) bool {
	return f.Kind != "note" && (filled.Has(f.Name) || f.Kind == "tick" || f.Kind == "ticks") && f.sent(filled) != f.shown()
}

// Touched reports whether the submitted value of a field differs from the one it shows.
func (f *Form) Touched(filled url.Values, name string) bool {
	at := f.fieldOf(name)
	return at != nil && at.touched(filled)
}

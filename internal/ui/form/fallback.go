package form

import (
	"maps"
	"net/url"
	"slices"
	"strings"
)

// hiddenFields are the hidden fields of all forms.
var hiddenFields = []string{VersionField, seenField, VisitorField, "counted", "action", "q", "ids", "state", "back", "request_id"}

// Fallback returns a form with the values that were sent, for when the form that they were sent from cannot be built.
// back is the page to return to.
func Fallback(filled url.Values, back string) *Form {
	f := &Form{Title: "Not done", Text: "Your input is kept below as you sent it.", Button: "Try again", Back: back, Wide: true}
	for _, name := range slices.Sorted(maps.Keys(filled)) {
		values := filled[name]
		at := Field{Name: name, Label: strings.NewReplacer("_", " ", ".", " ").Replace(name), Kind: "text",
			Value: asSent("area", values[0])}
		switch {
		case name == TokenField:
			at = Token()
		case slices.Contains(hiddenFields, name):
			at.Kind, at.Value = "hidden", HiddenValue(values[0])
		case len(values) > 1:
			at.Kind, at.Value = "ticks", ""
			for _, value := range values {
				at.Checkboxes = append(at.Checkboxes, Checkbox{Value: value, Checked: true})
			}
		case strings.Contains(at.Value, "\n"):
			at.Kind = "area"
		}
		f.Fields = append(f.Fields, at)
	}
	return f
}

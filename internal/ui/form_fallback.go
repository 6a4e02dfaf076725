package ui

import (
	"maps"
	"slices"
	"strings"
)

// hiddenFields are the hidden fields of forms.
var hiddenFields = []string{versionField, seenField, countedField, "action", "q", "ids", "back", "request_id"}

// showFallback responds to a refused form that can't be rebuilt because the API does not answer. A script gets only the error, and leaves the form as
// it is; without scripts, a form is shown with the input that was sent.
func (v *visit) showFallback(a action, err error) error {
	f := v.fallbackForm(a)
	f.refuse(err)
	if !v.partial() {
		return v.showForm(statusOf(err), f)
	}
	h := v.w.Header()
	h.Set("HX-Retarget", "find .refusal")
	h.Set("HX-Reswap", "innerHTML")
	return v.render(statusOf(err), "form", "refusal", f.Refused)
}

func (v *visit) fallbackForm(a action) *form {
	f := &form{Title: "Not done", Text: "Your input is kept below as you sent it.", Button: "Try again", Back: a.nav, Wide: true}
	for _, name := range slices.Sorted(maps.Keys(v.r.PostForm)) {
		values := v.r.PostForm[name]
		at := field{Name: name, Label: strings.NewReplacer("_", " ", ".", " ").Replace(name), Kind: "text", Value: tidyValue(values[0])}
		switch {
		case slices.Contains(hiddenFields, name):
			at.Kind = "hidden"
		case len(values) > 1:
			at.Kind, at.Value = "ticks", ""
			for _, value := range values {
				at.Ticks = append(at.Ticks, checkbox{Value: value, On: true})
			}
		case strings.Contains(at.Value, "\n"):
			at.Kind = "area"
		}
		f.Fields = append(f.Fields, at)
	}
	return f
}

package form

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/pawltype"
)

// Form asks for the input of an action.
type Form struct {
	Title  string
	Text   string // what will happen
	Facts  []Fact // about its subject
	Fields []Field
	Button string
	Danger bool   // irreversible
	Wide   bool   // many fields
	Back   string // the page to return to instead, below the base
	Sample []*pawltype.Task
	Check  *Check // a second button, which previews something
	// Version is the API's version of what the form edits; "": it edits nothing that others could edit meanwhile.
	Version string
	// Preview is a URL, below the base, that shows what the form would do while it is being filled in; "": none.
	Preview string

	Refused *format.Problem // why it was refused
	Action  string          // where it is submitted
	Visitor string          // who fills it in; "": visitors have no names
}

// ActTime is how long the calls of an action may take. The server gives a request 60 s.
const ActTime = 55 * time.Second

// TimeoutMillis is how long browsers wait for a response, in milliseconds: longer than an action may take.
func (f *Form) TimeoutMillis() int64 { return (ActTime + 10*time.Second).Milliseconds() }

// Fact is a name with a value.
type Fact struct{ Name, Value string }

// Check is a button that requests the form again with its current input.
type Check struct{ Label string }

// Field is an input of a form. It is named as in the API, so that errors find their field.
type Field struct {
	Name, Label, Hint, Value, Placeholder string
	// "text", "area", "json", "choice", "tick", "ticks", "hidden", "number", "secret", "note" (no input)
	Kind        string
	Options     []Option // of a choice; of a text: suggestions while typing
	Checkboxes  []Checkbox
	Required    bool
	Heading     string // starts a new section
	Fold        string // starts a section that is collapsed under this title
	FoldSummary string // summary of the collapsed section
	Refused     string // error
	Changed     string // what others have done to it since the form was opened
	OtherValue  string // their value, if it differs from the one in the field
}

// Described returns the ids of the elements that describe a field, for screen readers.
func (f Field) Described() string {
	var ids []string
	for _, of := range []struct{ text, id string }{{f.Refused, "wrong-"}, {f.Changed, "meanwhile-"}, {f.Hint, "hint-"}} {
		if of.text != "" {
			ids = append(ids, of.id+f.Name)
		}
	}
	return strings.Join(ids, " ")
}

// Option is a value of a choice.
type Option struct{ Value, Label string }

// Checkbox is one of several checkboxes.
type Checkbox struct {
	Value, Hint string
	Checked     bool
}

// Choices returns options labeled like their values.
func Choices(first string, values ...string) []Option {
	var all []Option
	if first != "" {
		all = append(all, Option{"", first})
	}
	for _, v := range values {
		all = append(all, Option{v, strings.ReplaceAll(v, "_", " ")})
	}
	return all
}

// TokenField asks for the visitor's token again. It is never shown.
const TokenField = "your_token"

// Token asks for the visitor's token again.
func Token() Field {
	return Field{Name: TokenField, Label: "Your token", Kind: "secret", Required: true, Placeholder: "pawl_…",
		Hint: "The one you logged in with, since this outlasts your session."}
}

// Reason asks for the reason, which the server records in the audit log.
func Reason() Field {
	return Field{Name: "reason", Label: "Reason", Placeholder: "Why? The audit log keeps it.", Kind: "text"}
}

// TidyValue trims a value and gives it LF line ends.
func TidyValue(s string) string { return strings.TrimSpace(strings.ReplaceAll(s, "\r\n", "\n")) }

// Refill fills in the form's previous input.
func (f *Form) Refill(filled url.Values) {
	if f.Version != "" {
		f.merge(filled)
	} else {
		f.fill(filled)
	}
}

func (f *Form) fill(filled url.Values) {
	for i := range f.Fields {
		if f.Fields[i].Kind == "hidden" || f.Fields[i].Kind == "note" {
			continue
		}
		f.Fields[i].Value = filled.Get(f.Fields[i].Name)
		for t := range f.Fields[i].Checkboxes {
			f.Fields[i].Checkboxes[t].Checked = slices.Contains(filled[f.Fields[i].Name], f.Fields[i].Checkboxes[t].Value)
		}
	}
}

// Refuse shows every error next to the field that it is about, under the field's label, or else above the form.
func (f *Form) Refuse(err error) {
	if f.stale(err) {
		p := changedByOthers
		f.Refused = &p
		return
	}
	p := format.ProblemOf(err)
	p.Title = strings.ReplaceAll(p.Code, "_", " ")
	if format.OutcomeUnknown(err) {
		p.Title, p.Message = "Outcome unknown", p.Message+". The change may have been made: check before you retry"
	}
	var labels []string
	for _, one := range format.EachError(err) {
		of := format.ProblemOf(one)
		if at := f.fieldOf(of.Field); at != nil {
			at.Refused = strings.TrimPrefix(of.Message, of.Field+": ")
			labels = append(labels, "“"+at.Label+"”")
		}
	}
	if len(labels) > 0 {
		p.Title, p.Message = "Not saved", "check "+strings.Join(labels, ", ")+" below"
	}
	f.Refused = &p
}

// section is a part of a form.
type section struct {
	Heading string // "": none
	Fold    string // it is collapsed under this title; "": it is not
	Summary string // summary of the collapsed fields
	Fields  []Field
}

// Sections divides the form: a field with a Heading or a Fold starts a section.
func (f *Form) Sections() (all []section) {
	for _, one := range f.Fields {
		if len(all) == 0 || one.Heading != "" || one.Fold != "" {
			all = append(all, section{Heading: one.Heading, Fold: one.Fold, Summary: one.FoldSummary})
		}
		last := &all[len(all)-1]
		last.Fields = append(last.Fields, one)
	}
	return all
}

// Open reports whether a collapsed section must be shown expanded: it has an error or, if it has no summary, a value.
func (s section) Open() bool {
	return slices.ContainsFunc(s.Fields, func(f Field) bool {
		return f.Refused != "" || f.Changed != "" || s.Summary == "" && f.Value != ""
	})
}

// fieldOf returns the visible field that an API error is about, or nil.
func (f *Form) fieldOf(name string) *Field {
	var best *Field
	for i := range f.Fields {
		at := &f.Fields[i]
		if name == at.Name || strings.HasPrefix(name, at.Name+".") || strings.HasPrefix(name, at.Name+"[") {
			if best == nil || len(at.Name) > len(best.Name) {
				best = at
			}
		}
	}
	if best == nil || best.Kind == "hidden" {
		return nil
	}
	return best
}

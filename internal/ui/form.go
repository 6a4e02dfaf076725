package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/pawltype"
)

// form asks for the input of an action.
type form struct {
	Title  string
	Text   string // what will happen
	Facts  []fact // about its subject
	Fields []field
	Button string
	Danger bool   // irreversible
	Wide   bool   // many fields
	Back   string // the page to return to instead, below the base
	Sample []*pawltype.Task
	Check  *check // a second button, which previews something
	// Version is the API's version of what the form edits; "": it edits nothing that others could edit meanwhile.
	Version string
	// Preview is a URL, below the base, that shows what the form would do while it is being filled in; "": none.
	Preview string

	Refused *problem // why it was refused
	Action  string   // where it is submitted
}

// TimeoutMillis is how long browsers wait for a response, in milliseconds: longer than an action may take.
func (f *form) TimeoutMillis() int64 { return (actTime + 10*time.Second).Milliseconds() }

// fact is a name with a value.
type fact struct{ Name, Value string }

// linkedFact is a fact whose value may have a page.
type linkedFact struct {
	fact
	URL string // "": none
}

// linked adds pages to the values of facts, by the facts' names.
func linked(facts []fact, pages map[string]string) []linkedFact {
	out := make([]linkedFact, len(facts))
	for i, f := range facts {
		out[i] = linkedFact{f, pages[f.Name]}
	}
	return out
}

// check is a button that requests the form again with its current input.
type check struct{ Label string }

// field is an input of a form. It is named as in the API, so that errors find their field.
type field struct {
	Name, Label, Hint, Value, Placeholder string
	Kind                                  string   // "text", "area", "json", "choice", "tick", "ticks", "hidden", "number", "note" (a remark instead of an input)
	Options                               []option // of a choice; of a text: suggestions while typing
	Ticks                                 []checkbox
	Required                              bool
	Heading                               string // starts a new section
	Fold                                  string // starts a section that is collapsed under this title
	FoldSays                              string // summary of the collapsed section
	Refused                               string // error
	Meanwhile                             string // what others have done to it since the form was opened
	Theirs                                string // their value, if it differs from the one in the field
}

// Described returns the ids of the elements that describe a field, for screen readers.
func (f field) Described() string {
	var ids []string
	for _, of := range []struct{ text, id string }{{f.Refused, "wrong-"}, {f.Meanwhile, "meanwhile-"}, {f.Hint, "hint-"}} {
		if of.text != "" {
			ids = append(ids, of.id+f.Name)
		}
	}
	return strings.Join(ids, " ")
}

// option is a value of a choice.
type option struct{ Value, Label string }

// checkbox is one of several checkboxes.
type checkbox struct {
	Value, Hint string
	On          bool
}

// choices returns options labelled like their values.
func choices(first string, values ...string) []option {
	var all []option
	if first != "" {
		all = append(all, option{"", first})
	}
	for _, v := range values {
		all = append(all, option{v, strings.ReplaceAll(v, "_", " ")})
	}
	return all
}

// reasonField asks for the reason, which the server records in the audit log.
func reasonField() field {
	return field{Name: "reason", Label: "Reason", Placeholder: "Why? The audit log keeps it.", Kind: "text"}
}

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
	return tidyValue(v.r.PostForm.Get(name))
}

func tidyValue(s string) string { return strings.TrimSpace(strings.ReplaceAll(s, "\r\n", "\n")) }

// again fills in the form's previous input.
func (f *form) again(filled url.Values) {
	if f.Version != "" {
		f.merge(filled)
	} else {
		f.refill(filled)
	}
}

func (f *form) refill(filled url.Values) {
	for i := range f.Fields {
		if f.Fields[i].Kind == "hidden" {
			continue
		}
		f.Fields[i].Value = filled.Get(f.Fields[i].Name)
		for t := range f.Fields[i].Ticks {
			f.Fields[i].Ticks[t].On = slices.Contains(filled[f.Fields[i].Name], f.Fields[i].Ticks[t].Value)
		}
	}
}

// refuse shows every error next to the field that it is about, under the field's label, or else above the form.
func (f *form) refuse(err error) {
	if f.stale(err) {
		p := staleForm
		f.Refused = &p
		return
	}
	p := problemOf(err)
	p.Title = strings.ReplaceAll(p.Code, "_", " ")
	if unanswered(err) {
		p.Title, p.Message = "Outcome unknown", p.Message+". The change may have been made: check before you retry"
	}
	var labels []string
	for _, one := range eachError(err) {
		of := problemOf(one)
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

// unanswered reports whether an error leaves open whether the action was done.
func unanswered(err error) bool {
	return errors.Is(err, pawltype.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// eachError returns the errors that reader.fail has joined.
func eachError(err error) []error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return all.Unwrap()
	}
	return []error{err}
}

// section is a part of a form.
type section struct {
	Heading string // "": none
	Fold    string // it is collapsed under this title; "": it is not
	Says    string // summary of the collapsed fields
	Fields  []field
}

// Sections divides the form: a field with a Heading or a Fold starts a section.
func (f *form) Sections() (all []section) {
	for _, one := range f.Fields {
		if len(all) == 0 || one.Heading != "" || one.Fold != "" {
			all = append(all, section{Heading: one.Heading, Fold: one.Fold, Says: one.FoldSays})
		}
		last := &all[len(all)-1]
		last.Fields = append(last.Fields, one)
	}
	return all
}

// Open reports whether a collapsed section must be shown expanded: it has an error or, if it has no summary, a value.
func (s section) Open() bool {
	return slices.ContainsFunc(s.Fields, func(f field) bool {
		return f.Refused != "" || f.Meanwhile != "" || s.Says == "" && f.Value != ""
	})
}

// fieldOf returns the visible field that an API error is about, or nil.
func (f *form) fieldOf(name string) *field {
	var best *field
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

func (v *visit) showForm(status int, f *form) error {
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

// badField returns an error for a field that can't be parsed.
func badField(name, format string, args ...any) error {
	return &pawltype.Error{Code: "invalid_argument", Field: name, Message: name + ": " + fmt.Sprintf(format, args...)}
}

// reader parses the values of a form and collects their errors, the first one for each field.
type reader struct {
	v     *visit
	from  url.Values // nil: the form that was submitted
	err   error      // of one field, or errors.Join of several
	wrong []error
}

func (r *reader) text(name string) string {
	if r.from != nil {
		return tidyValue(r.from.Get(name))
	}
	return r.v.value(name)
}

func (r *reader) fail(err error) {
	if slices.ContainsFunc(r.wrong, func(e error) bool { return problemOf(e).Field == problemOf(err).Field }) {
		return
	}
	r.wrong = append(r.wrong, err)
	if r.err = r.wrong[0]; len(r.wrong) > 1 {
		r.err = errors.Join(r.wrong...)
	}
}

// needed returns a required value.
func (r *reader) needed(field string) string {
	s := r.text(field)
	if s == "" {
		r.fail(badField(field, "is required"))
	}
	return s
}

// name parses the name of something to be created.
func (r *reader) name(field string) string {
	s := r.needed(field)
	if strings.ContainsFunc(s, func(c rune) bool { return !strings.ContainsRune(nameLetters, c) }) {
		r.fail(badField(field, "%q contains characters other than letters, digits and . _ - :", format.Clip(s, 60)))
	}
	return s
}

// nameLetters are the characters allowed in names.
const nameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:"

// patterns parses patterns of queue names.
func (r *reader) patterns(field string) []string {
	all := splitList(r.text(field))
	for _, p := range all {
		if strings.ContainsFunc(p, func(c rune) bool { return c != '*' && !strings.ContainsRune(nameLetters, c) }) {
			r.fail(badField(field, "%q contains characters other than letters, digits, . _ - : and *", format.Clip(p, 60)))
		}
	}
	return all
}

// whole parses a whole number; "" is 0.
func (r *reader) whole(name string) int64 {
	s := strings.ReplaceAll(r.text(name), ",", "")
	if s == "" {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		r.fail(badField(name, "%q is not a whole number of 0 or more", format.Clip(s, 40)))
	}
	return n
}

func (r *reader) count(name string) int { return int(min(r.whole(name), 1<<31-1)) }

// share parses a number that may have a fraction.
func (r *reader) share(name string) float64 {
	s := r.text(name)
	if s == "" {
		return 0
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f < 0 || f > 1e15 {
		r.fail(badField(name, "%q is not a number of 0 or more", format.Clip(s, 40)))
		return 0
	}
	return f
}

// duration parses a duration; "" is 0.
func (r *reader) duration(name string) time.Duration {
	s := r.text(name)
	if s == "" {
		return 0
	}
	d, err := humanize.Duration(s)
	if err == nil && d < 0 {
		err = fmt.Errorf("%q is negative", format.Clip(s, 40))
	}
	if err != nil {
		r.fail(badField(name, "%v", err))
		return 0
	}
	return d
}

// notJSON returns where and why a text is not JSON, at the first error; "": it is JSON.
func notJSON(text []byte) string {
	var syntax *json.SyntaxError
	if err := json.Unmarshal(text, new(json.RawMessage)); err == nil {
		return ""
	} else if !errors.As(err, &syntax) {
		return "is not JSON: " + err.Error()
	}
	at := text[:max(min(int(syntax.Offset), len(text))-1, 0)] // up to the invalid character
	if strings.Contains(syntax.Error(), "unexpected end") {
		at = text
	}
	line, column := bytes.Count(at, []byte("\n"))+1, utf8.RuneCount(at[bytes.LastIndexByte(at, '\n')+1:])+1
	return fmt.Sprintf("is not JSON: line %d, column %d: %s", line, column, syntax)
}

// time parses a time, or a duration from now.
func (r *reader) time(name string) time.Time {
	s := r.text(name)
	if s == "" {
		return time.Time{}
	}
	if t, err := humanize.Time(s); err == nil {
		return t
	}
	if d, err := humanize.Duration(strings.TrimPrefix(s, "in ")); err == nil && d >= 0 {
		return r.v.now.Add(d)
	}
	r.fail(badField(name, "%q is neither a time such as 2026-01-31T12:00:00Z nor a delay such as 10m", format.Clip(s, 40)))
	return time.Time{}
}

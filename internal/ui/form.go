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
	"github.com/pawlq/pawl/pawltype"
)

// form asks for what an action needs.
type form struct {
	Title  string
	Text   string // what will happen
	Facts  []fact // what it will happen to
	Fields []field
	Button string
	Danger bool   // it can't be undone
	Wide   bool   // it has many fields
	Back   string // where to go instead, below the base
	Sample []*pawltype.Task
	Check  *check // a second button, which shows something first
	// Version is that of what the form edits, as the API tells it; "": it edits nothing that others could edit meanwhile.
	Version string
	// Preview is an address, below the base, that shows what the form would do while it is filled in; "": there is none.
	Preview string

	Refused *problem // why it was not done
	Action  string   // where it is sent
}

// Patience is for how many milliseconds browsers wait for an answer: longer than an action may take.
func (f *form) Patience() int64 { return (actTime + 10*time.Second).Milliseconds() }

// fact is a line that tells a name and a value.
type fact struct{ Name, Value string }

// linkedFact is a fact whose value has a page.
type linkedFact struct {
	fact
	URL string // "": it has none
}

// linked gives the values of some facts their pages, by the names of the facts.
func linked(facts []fact, pages map[string]string) []linkedFact {
	out := make([]linkedFact, len(facts))
	for i, f := range facts {
		out[i] = linkedFact{f, pages[f.Name]}
	}
	return out
}

// check is a button that asks for the form again, as it is filled in.
type check struct{ Label string }

// field is one value of a form. Its name is that of the API, so that refusals find their field.
type field struct {
	Name, Label, Hint, Value, Placeholder string
	Kind                                  string   // "text", "area", "json", "choice", "tick", "ticks", "hidden", "number", "note" (which says something instead)
	Options                               []option // of a choice; of a text: what is suggested while it is typed
	Ticks                                 []tick
	Required                              bool
	Heading                               string // a new part of the form begins here
	Fold                                  string // a part of the form that is folded away under this word begins here
	FoldSays                              string // what is in it, in short
	Refused                               string // what is wrong with it
	Meanwhile                             string // what others have done with it since the form was opened
	Theirs                                string // what they have put in, if that is not what stands in the field
}

// Described are the ids of what tells more about a field, for screen readers.
func (f field) Described() string {
	var ids []string
	for _, of := range []struct{ text, id string }{{f.Refused, "wrong-"}, {f.Meanwhile, "meanwhile-"}, {f.Hint, "hint-"}} {
		if of.text != "" {
			ids = append(ids, of.id+f.Name)
		}
	}
	return strings.Join(ids, " ")
}

// option is one value of a choice.
type option struct{ Value, Label string }

// tick is one of several that can be on at once.
type tick struct {
	Value, Hint string
	On          bool
}

// choices are options that are called as they are.
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

// reasonField asks why. The server keeps it with what was done.
func reasonField() field {
	return field{Name: "reason", Label: "Reason", Placeholder: "Why? The audit log keeps it.", Kind: "text"}
}

const (
	// maxForm is more than a payload of 1 MiB takes when it is written as a form.
	maxForm = 4 << 20
	// maxStranger is more than a login takes, and most other forms.
	maxStranger = 4 << 10
)

// formLimit is how long a form may be: of those of whom it is not known who they are, not much is read.
func (v *visit) formLimit() int64 {
	if v.me == nil {
		return maxStranger
	}
	return maxForm
}

// readForm reads what was filled in. How long it may take says the server.
func (v *visit) readForm() error {
	kind, _, err := mime.ParseMediaType(v.r.Header.Get("Content-Type"))
	if err != nil || kind != "application/x-www-form-urlencoded" {
		return &pawltype.Error{Code: "invalid_argument", Field: "Content-Type", Message: "a form is application/x-www-form-urlencoded"}
	}
	limit := v.formLimit()
	if v.r.ContentLength > limit {
		v.w.Header().Set("Connection", "close") // or the server would wait for it behind the answer
		return tooLong(limit)
	}
	v.r.Body = http.MaxBytesReader(v.w, v.r.Body, limit)
	if err := v.r.ParseForm(); err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return tooLong(limit)
		}
		return &pawltype.Error{Code: "invalid_argument", Message: "the form is incomplete or malformed"}
	}
	_ = http.NewResponseController(v.w).SetReadDeadline(time.Time{}) // or it would end the context of what the form does
	return nil
}

func tooLong(limit int64) error {
	return &pawltype.Error{Code: "payload_too_large", Message: fmt.Sprintf("the form is too large: at most %d KiB", limit>>10)}
}

// value is what was filled in, without space around it and with the line ends of Unix.
func (v *visit) value(name string) string {
	return tidyValue(v.r.PostForm.Get(name))
}

func tidyValue(s string) string { return strings.TrimSpace(strings.ReplaceAll(s, "\r\n", "\n")) }

// again puts in what was filled in before.
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

// refuse shows each error beside the field that it names, called as the form calls it, or else above all.
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

// unanswered tells of an error that leaves open whether something was done.
func unanswered(err error) bool {
	return errors.Is(err, pawltype.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// eachError are the errors that reader.fail has put together.
func eachError(err error) []error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return all.Unwrap()
	}
	return []error{err}
}

// section is a part of a form.
type section struct {
	Heading string // "": none
	Fold    string // it is folded away under this; "": it is not
	Says    string // what the folded fields hold, in short
	Fields  []field
}

// Sections are the parts of the form: a field with a Heading or a Fold begins one.
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

// Open tells of a folded section in which something has to be seen: a refusal, or, where nothing says in short what it holds, a value.
func (s section) Open() bool {
	return slices.ContainsFunc(s.Fields, func(f field) bool {
		return f.Refused != "" || f.Meanwhile != "" || s.Says == "" && f.Value != ""
	})
}

// fieldOf is the field that an error of the API is about; nil: none that is seen.
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

// showPart shows what stands over a page if a script asks, and is a page of its own if not.
func (v *visit) showPart(status int, file string, s *screen) error {
	if v.partial() {
		return v.render(status, file, "live", s.Data)
	}
	return v.render(status, file, "layout", v.frame(s))
}

// badField is the error of a field that can't be read.
func badField(name, format string, args ...any) error {
	return &pawltype.Error{Code: "invalid_argument", Field: name, Message: name + ": " + fmt.Sprintf(format, args...)}
}

// reader reads the values of a form and keeps what is wrong with them: at each field the first error.
type reader struct {
	v     *visit
	from  url.Values // nil: the form that was sent
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

// needed reads what can't be left out.
func (r *reader) needed(field string) string {
	s := r.text(field)
	if s == "" {
		r.fail(badField(field, "is required"))
	}
	return s
}

// name reads the name of something that is made.
func (r *reader) name(field string) string {
	s := r.needed(field)
	if strings.ContainsFunc(s, func(c rune) bool { return !strings.ContainsRune(nameLetters, c) }) {
		r.fail(badField(field, "%q contains characters other than letters, digits and . _ - :", clip(s, 60)))
	}
	return s
}

// nameLetters are what names are made of.
const nameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:"

// patterns reads patterns of the names of queues.
func (r *reader) patterns(field string) []string {
	all := splitList(r.text(field))
	for _, p := range all {
		if strings.ContainsFunc(p, func(c rune) bool { return c != '*' && !strings.ContainsRune(nameLetters, c) }) {
			r.fail(badField(field, "%q contains characters other than letters, digits, . _ - : and *", clip(p, 60)))
		}
	}
	return all
}

// whole reads a number; 0 if nothing is filled in.
func (r *reader) whole(name string) int64 {
	s := strings.ReplaceAll(r.text(name), ",", "")
	if s == "" {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		r.fail(badField(name, "%q is not a whole number of 0 or more", clip(s, 40)))
	}
	return n
}

func (r *reader) count(name string) int { return int(min(r.whole(name), 1<<31-1)) }

// share reads a number that may have a fraction.
func (r *reader) share(name string) float64 {
	s := r.text(name)
	if s == "" {
		return 0
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f < 0 || f > 1e15 {
		r.fail(badField(name, "%q is not a number of 0 or more", clip(s, 40)))
		return 0
	}
	return f
}

// span reads a duration; 0 if nothing is filled in.
func (r *reader) span(name string) time.Duration {
	s := r.text(name)
	if s == "" {
		return 0
	}
	d, err := humanize.Span(s)
	if err == nil && d < 0 {
		err = fmt.Errorf("%q is negative", clip(s, 40))
	}
	if err != nil {
		r.fail(badField(name, "%v", err))
		return 0
	}
	return d
}

// notJSON says where and why a text is no JSON, at the first place; "": it is.
func notJSON(text []byte) string {
	var syntax *json.SyntaxError
	if err := json.Unmarshal(text, new(json.RawMessage)); err == nil {
		return ""
	} else if !errors.As(err, &syntax) {
		return "is not JSON: " + err.Error()
	}
	at := text[:max(min(int(syntax.Offset), len(text))-1, 0)] // before the character that was wrong
	if strings.Contains(syntax.Error(), "unexpected end") {
		at = text
	}
	line, column := bytes.Count(at, []byte("\n"))+1, utf8.RuneCount(at[bytes.LastIndexByte(at, '\n')+1:])+1
	return fmt.Sprintf("is not JSON: line %d, column %d: %s", line, column, syntax)
}

// moment reads a time, or how far away one is.
func (r *reader) moment(name string) time.Time {
	s := r.text(name)
	if s == "" {
		return time.Time{}
	}
	if t, err := humanize.Time(s); err == nil {
		return t
	}
	if d, err := humanize.Span(strings.TrimPrefix(s, "in ")); err == nil && d >= 0 {
		return r.v.now.Add(d)
	}
	r.fail(badField(name, "%q is neither a time such as 2026-01-31T12:00:00Z nor a delay such as 10m", clip(s, 40)))
	return time.Time{}
}

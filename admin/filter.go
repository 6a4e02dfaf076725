package admin

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/pawltype"
)

// The filter language of the command and the web UI has conditions of the form field:value, separated by spaces, such as
//
//	queue:mail state:dead,poisoned error:"timed out" created_after:2h
//
// All must match. A quoted value may contain spaces; in quotes, \ escapes the next character. Words without a field are
// searched for in the payload; payload.customer.id:42 matches a field of it. A time is an age (2h, 7d), a day
// (2026-01-31) or an RFC 3339 time; without a zone it is UTC.

// badFilter returns the error for a filter that can't be parsed.
func badFilter(format string, args ...any) *pawltype.Error {
	return &pawltype.Error{Code: pawltype.ErrInvalidArgument, Field: "filter", Message: "filter: " + fmt.Sprintf(format, args...)}
}

// FilterTerm is one condition: field:value.
type FilterTerm struct{ Field, Value string }

// FilterTerms are the conditions of a filter as written.
type FilterTerms []FilterTerm

// filterFields are the fields of Filter, in the order in which they are written. Some have short names.
var filterFields = []string{"queue", "state", "type", "tag", "key", "worker", "error", "fingerprint", "operation", "created_after",
	"created_before", "q"}

var shortFilterFields = map[string]string{"after": "created_after", "before": "created_before", "payload": "q"}

var filterStates = []pawltype.State{pawltype.StateScheduled, pawltype.StateReady, pawltype.StateClaimed, pawltype.StateRetrying,
	pawltype.StateSucceeded, pawltype.StateDead, pawltype.StatePoisoned, pawltype.StateDiscarded, pawltype.StateCancelled}

// Conditions on payload fields have the field's path after the prefix.
const (
	payloadPrefix = "payload."
	shortPayload  = "args."
)

// path returns the path of a payload field, or "" if the condition is about something else.
func (t FilterTerm) path() string {
	path, _ := strings.CutPrefix(t.Field, payloadPrefix)
	if path == t.Field {
		return ""
	}
	return path
}

// maxFilterText is the maximum length of a filter in the filter language, in bytes.
const maxFilterText = 4 << 10

// ParseFilter parses a filter in the filter language. Ages are relative to now. Its error is an ErrInvalidArgument that says which part is
// wrong.
func ParseFilter(text string, now time.Time) (Filter, error) {
	terms, err := ParseFilterTerms(text)
	if err != nil {
		return Filter{}, err
	}
	return terms.Filter(now)
}

// ParseFilterTerms parses the conditions of a filter, but does not interpret their values.
func ParseFilterTerms(text string) (FilterTerms, error) {
	if len(text) > maxFilterText {
		return nil, badFilter("%d bytes, at most %d are allowed", len(text), maxFilterText)
	}
	if !utf8.ValidString(text) {
		return nil, badFilter("is not UTF-8")
	}
	var all FilterTerms
	var loose []string
	for rest := strings.TrimSpace(text); rest != ""; rest = strings.TrimSpace(rest) {
		t, after, err := nextTerm(rest)
		if err != nil {
			return nil, err
		}
		rest = after
		if t.Field == "" {
			loose = append(loose, t.Value)
			continue
		}
		if long, ok := shortFilterFields[t.Field]; ok {
			t.Field = long
		}
		if path, ok := strings.CutPrefix(t.Field, shortPayload); ok {
			t.Field = payloadPrefix + path
		}
		if !slices.Contains(filterFields, t.Field) && t.path() == "" {
			return nil, badFilter("%.40q is not a field: the fields are %s and payload.PATH", t.Field, strings.Join(filterFields, ", "))
		}
		all = append(all, t)
	}
	if len(loose) > 0 {
		all = append(all, FilterTerm{"q", strings.Join(loose, " ")})
	}
	return all, nil
}

// nextTerm cuts off the first condition. A condition without a field and a colon is a word.
func nextTerm(s string) (t FilterTerm, rest string, err error) {
	end := fieldEnd(s)
	if end > 0 && s[end] == ':' {
		t.Field, s = s[:end], s[end+1:]
	}
	if !strings.HasPrefix(s, `"`) {
		if end = strings.IndexFunc(s, unicode.IsSpace); end < 0 {
			end = len(s)
		}
		if end == 0 {
			return t, "", badFilter("%.40s: has no value", t.Field)
		}
		t.Value = s[:end]
		return t, s[end:], nil
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		case s[i] == '"':
			t.Value = b.String()
			return t, s[i+1:], nil
		default:
			b.WriteByte(s[i])
		}
	}
	return t, "", badFilter("the quotation mark before %.40q is not closed", s[1:])
}

// fieldEnd returns where a condition's field, or its first word, ends. In the path of a payload field, \ escapes the next character.
func fieldEnd(s string) int {
	escapes := strings.HasPrefix(s, payloadPrefix) || strings.HasPrefix(s, shortPayload)
	escaped := false
	return strings.IndexFunc(s, func(c rune) bool {
		switch {
		case escaped:
			escaped = false
			return false
		case escapes && c == '\\':
			escaped = true
			return false
		}
		return c == ':' || c == '"' || unicode.IsSpace(c)
	})
}

// Filter interprets the conditions. Ages are relative to now.
func (terms FilterTerms) Filter(now time.Time) (f Filter, err error) {
	seen := map[string]bool{}
	for _, t := range terms {
		if seen[t.Field] {
			return f, badFilter("%s is given twice", t.Field)
		}
		seen[t.Field] = true
		if err := t.apply(&f, now); err != nil {
			return f, err
		}
	}
	return f, nil
}

func (t FilterTerm) apply(f *Filter, now time.Time) (err error) {
	if to := f.text(t.Field); to != nil {
		*to = t.Value
		return nil
	}
	if path := t.path(); path != "" {
		f.Payload = append(f.Payload, PayloadField{path, t.Value})
		return nil
	}
	switch t.Field {
	case "created_after":
		f.CreatedAfter, err = t.moment(now)
	case "created_before":
		f.CreatedBefore, err = t.moment(now)
	case "state":
		for word := range strings.SplitSeq(t.Value, ",") {
			s := pawltype.State(strings.TrimSpace(word))
			if !slices.Contains(filterStates, s) {
				return badFilter("%.40q is not a state: the states are %s", string(s), joinStates(filterStates, ", "))
			}
			f.States = append(f.States, s)
		}
	}
	return err
}

// text returns a text field of the filter, or nil if the field is not text.
func (f *Filter) text(field string) *string {
	switch field {
	case "queue":
		return &f.Queue
	case "type":
		return &f.Type
	case "tag":
		return &f.Tag
	case "key":
		return &f.Key
	case "worker":
		return &f.Worker
	case "error":
		return &f.Error
	case "fingerprint":
		return &f.Fingerprint
	case "operation":
		return &f.Operation
	case "q":
		return &f.Text
	}
	return nil
}

// moment parses a time, or an age before now.
func (t FilterTerm) moment(now time.Time) (time.Time, error) {
	at, err := humanize.Past(t.Value, now)
	if err != nil {
		return at, badFilter("%s: %v", t.Field, err)
	}
	return at, nil
}

// String formats the conditions in the filter language.
func (terms FilterTerms) String() string {
	all := make([]string, len(terms))
	for i, t := range terms {
		all[i] = t.Field + ":" + quoteTerm(t.Value)
	}
	return strings.Join(all, " ")
}

// With returns the conditions with a field set to value, or removed if value is "".
func (terms FilterTerms) With(field, value string) FilterTerms {
	out := slices.DeleteFunc(slices.Clone(terms), func(t FilterTerm) bool { return t.Field == field })
	if value != "" {
		out = append(out, FilterTerm{field, value})
	}
	return out
}

func quoteTerm(s string) string {
	if s != "" && !strings.ContainsFunc(s, unicode.IsSpace) && !strings.HasPrefix(s, `"`) {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// String formats the filter in the filter language, with exact times; "" selects every task. ParseFilter parses the result.
func (f Filter) String() string {
	var terms FilterTerms
	for _, field := range filterFields {
		value := ""
		switch to := f.text(field); {
		case to != nil:
			value = *to
		case field == "state":
			value = joinStates(f.States, ",")
		case field == "created_after":
			value = exactTime(f.CreatedAfter)
		case field == "created_before":
			value = exactTime(f.CreatedBefore)
		}
		if value != "" {
			terms = append(terms, FilterTerm{field, value})
		}
	}
	for _, p := range f.Payload {
		terms = append(terms, FilterTerm{payloadPrefix + p.Path, p.Value})
	}
	return terms.String()
}

func exactTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func joinStates(states []pawltype.State, between string) string {
	words := make([]string, len(states))
	for i, s := range states {
		words[i] = string(s)
	}
	return strings.Join(words, between)
}

// AllTasks returns a filter that selects every task.
func AllTasks() *Filter { return &Filter{all: true} }

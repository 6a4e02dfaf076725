package ui

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/pawlq/pawl"
)

// term is one condition of a filter in text form: field:value.
type term struct{ Field, Value string }

// filterFields are the fields of the API's filter, in the order in which they are shown. Two have short names.
var filterFields = []string{"queue", "state", "type", "tag", "key", "worker", "error", "fingerprint", "operation", "created_after", "created_before", "q"}

var shortFields = map[string]string{"after": "created_after", "before": "created_before", "payload": "q"}

// maxFilterText is more than all fields of a filter take at their limits.
const maxFilterText = 4 << 10

var allStates = []pawl.State{
	pawl.StateScheduled, pawl.StateReady, pawl.StateClaimed, pawl.StateRetrying,
	pawl.StateSucceeded, pawl.StateDead, pawl.StatePoisoned, pawl.StateDiscarded, pawl.StateCancelled,
}

// splitTerms reads the filter language: conditions with spaces between, values in quotes where they hold spaces, and words without a
// field, which are looked for in the payload.
func splitTerms(text string) ([]term, error) {
	if len(text) > maxFilterText {
		return nil, badFilter("%d bytes, at most %d are allowed", len(text), maxFilterText)
	}
	var all []term
	var loose []string
	for rest := strings.TrimSpace(text); rest != ""; rest = strings.TrimSpace(rest) {
		name, value, after, err := nextTerm(rest)
		if err != nil {
			return nil, err
		}
		rest = after
		if name == "" {
			loose = append(loose, value)
			continue
		}
		if long, ok := shortFields[name]; ok {
			name = long
		}
		if !slices.Contains(filterFields, name) {
			return nil, badFilter("%q is not a field: there are %s", clip(name, 40), strings.Join(filterFields, ", "))
		}
		all = append(all, term{name, value})
	}
	if len(loose) > 0 {
		all = append(all, term{"q", strings.Join(loose, " ")})
	}
	return all, nil
}

// badFilter is the error of a filter that can't be read. It stands by the filter, so it does not name it.
func badFilter(format string, args ...any) error {
	return &pawl.Error{Code: "invalid_argument", Field: "q", Message: fmt.Sprintf(format, args...)}
}

func stateWords() string {
	words := make([]string, len(allStates))
	for i, s := range allStates {
		words[i] = string(s)
	}
	return strings.Join(words, ", ")
}

// nextTerm cuts the first condition off. What has no field before a colon is a word.
func nextTerm(s string) (name, value, rest string, err error) {
	end := strings.IndexFunc(s, func(c rune) bool { return c == ':' || c == '"' || unicode.IsSpace(c) })
	if end > 0 && s[end] == ':' {
		name, s = s[:end], s[end+1:]
	}
	if !strings.HasPrefix(s, `"`) {
		if end = strings.IndexFunc(s, unicode.IsSpace); end < 0 {
			end = len(s)
		}
		if end == 0 && name != "" {
			return "", "", "", badFilter("%s: has no value behind it", clip(name, 40))
		}
		return name, s[:end], s[end:], nil
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		case s[i] == '"':
			return name, b.String(), s[i+1:], nil
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", "", badFilter("the quotation mark before %q has no end", clip(s[1:], 40))
}

// parseFilter reads the filter language. now is what ages count from.
func parseFilter(text string, now time.Time) (pawl.Filter, []term, error) {
	var f pawl.Filter
	terms, err := splitTerms(text)
	if err != nil {
		return f, nil, err
	}
	seen := map[string]bool{}
	for _, t := range terms {
		if seen[t.Field] {
			return f, terms, badFilter("%s is given twice", t.Field)
		}
		seen[t.Field] = true
		if err := t.apply(&f, now); err != nil {
			return f, terms, err
		}
	}
	return f, terms, nil
}

func (t term) apply(f *pawl.Filter, now time.Time) (err error) {
	switch t.Field {
	case "queue":
		f.Queue = t.Value
	case "type":
		f.Type = t.Value
	case "tag":
		f.Tag = t.Value
	case "key":
		f.Key = t.Value
	case "worker":
		f.Worker = t.Value
	case "error":
		f.Error = t.Value
	case "fingerprint":
		f.Fingerprint = t.Value
	case "operation":
		f.Operation = t.Value
	case "q":
		f.Text = t.Value
	case "created_after":
		f.CreatedAfter, err = pastMoment(t, now)
	case "created_before":
		f.CreatedBefore, err = pastMoment(t, now)
	case "state":
		for _, word := range strings.Split(t.Value, ",") {
			s := pawl.State(strings.TrimSpace(word))
			if !slices.Contains(allStates, s) {
				return badFilter("%q is not a state: there are %s", clip(word, 40), stateWords())
			}
			f.States = append(f.States, s)
		}
	}
	return err
}

// pastMoment reads a time, or an age.
func pastMoment(t term, now time.Time) (time.Time, error) {
	if at, err := parseTime(t.Value); err == nil {
		return at, nil
	}
	if d, err := parseSpan(t.Value); err == nil {
		return now.Add(-d), nil
	}
	return time.Time{}, badFilter("%s: %q is neither a day such as 2026-01-31, a time such as 2026-01-31T12:00:00Z nor an age such as 2h", t.Field, clip(t.Value, 40))
}

// termsText is the inverse of splitTerms.
func termsText(terms []term) string {
	all := make([]string, len(terms))
	for i, t := range terms {
		all[i] = t.Field + ":" + quoteValue(t.Value)
	}
	return strings.Join(all, " ")
}

func quoteValue(s string) string {
	if s != "" && !strings.ContainsFunc(s, unicode.IsSpace) && !strings.HasPrefix(s, `"`) {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// filterText is a filter in its language, with exact times.
func filterText(f pawl.Filter) string {
	var terms []term
	add := func(field, value string) {
		if value != "" {
			terms = append(terms, term{field, value})
		}
	}
	add("queue", f.Queue)
	states := make([]string, len(f.States))
	for i, s := range f.States {
		states[i] = string(s)
	}
	add("state", strings.Join(states, ","))
	add("type", f.Type)
	add("tag", f.Tag)
	add("key", f.Key)
	add("worker", f.Worker)
	add("error", f.Error)
	add("fingerprint", f.Fingerprint)
	add("operation", f.Operation)
	for field, at := range map[string]time.Time{"created_after": f.CreatedAfter, "created_before": f.CreatedBefore} {
		if !at.IsZero() {
			add(field, at.UTC().Format(time.RFC3339Nano))
		}
	}
	add("q", f.Text)
	slices.SortStableFunc(terms, func(a, b term) int { return slices.Index(filterFields, a.Field) - slices.Index(filterFields, b.Field) })
	return termsText(terms)
}

// with are the terms with a field set anew; "" takes it away.
func with(terms []term, field, value string) []term {
	out := slices.DeleteFunc(slices.Clone(terms), func(t term) bool { return t.Field == field })
	if value != "" {
		out = append(out, term{field, value})
	}
	return out
}

// filterWords says in words what a filter selects.
func filterWords(f pawl.Filter) string {
	if text := filterText(f); text != "" {
		return text
	}
	return "every task"
}

package form

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/pawltype"
)

// Reader parses the values of a form and collects their errors, the first one for each field.
type Reader struct {
	Err    error // of one field, or errors.Join of several
	values url.Values
	now    time.Time
	shown  *Form // what the values were entered into; nil: an empty form
	wrong  []error
}

// NewReader returns a reader of a form's values. Delays are relative to now.
func NewReader(values url.Values, now time.Time) *Reader { return &Reader{values: values, now: now} }

// NewEdits returns a reader of the values of a form that showed others.
func NewEdits(shown *Form, values url.Values, now time.Time) *Reader {
	return &Reader{values: values, now: now, shown: shown}
}

// Text returns a value, trimmed and with LF line ends. What was shown, and not touched, or hidden, is returned as it is.
func (r *Reader) Text(name string) string {
	sent := r.values.Get(name)
	if r.shown == nil {
		return TidyValue(sent)
	}
	for i := range r.shown.Fields {
		switch at := &r.shown.Fields[i]; {
		case at.Name != name:
		case at.Kind == "hidden":
			return HiddenValue(sent)
		case at.Kind != "choice" && !at.touched(r.values):
			return at.Value
		}
	}
	return TidyValue(sent)
}

// Touched reports whether a value differs from the one that the form showed.
func (r *Reader) Touched(name string) bool { return r.shown == nil || r.shown.Touched(r.values, name) }

// Set reads a value that somebody touched. Others stay as they are, since a field need not show all of them.
func Set[T any](r *Reader, to *T, read func(name string) T, name string) {
	if r.Touched(name) {
		*to = read(name)
	}
}

// Fail records an error, unless its field has one already.
func (r *Reader) Fail(err error) {
	if slices.ContainsFunc(r.wrong, func(e error) bool { return format.ProblemOf(e).Field == format.ProblemOf(err).Field }) {
		return
	}
	r.wrong = append(r.wrong, err)
	if r.Err = r.wrong[0]; len(r.wrong) > 1 {
		r.Err = errors.Join(r.wrong...)
	}
}

// Required returns a required value.
func (r *Reader) Required(field string) string {
	s := r.Text(field)
	if s == "" {
		r.Fail(format.BadField(field, "is required"))
	}
	return s
}

// Name parses the name of something to be created.
func (r *Reader) Name(field string) string {
	s := r.Required(field)
	if strings.ContainsFunc(s, func(c rune) bool { return !strings.ContainsRune(nameLetters, c) }) {
		r.Fail(format.BadField(field, "%q contains characters other than letters, digits and . _ - :", format.Clip(s, 60)))
	}
	return s
}

// nameLetters are the characters allowed in names.
const nameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:"

// Patterns parses patterns of queue names.
func (r *Reader) Patterns(field string) []string {
	all := SplitList(r.Text(field))
	for _, p := range all {
		if strings.ContainsFunc(p, func(c rune) bool { return c != '*' && !strings.ContainsRune(nameLetters, c) }) {
			r.Fail(format.BadField(field, "%q contains characters other than letters, digits, . _ - : and *", format.Clip(p, 60)))
		}
	}
	return all
}

// Whole parses a whole number; "" is 0.
func (r *Reader) Whole(name string) int64 {
	s := strings.ReplaceAll(r.Text(name), ",", "")
	if s == "" {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		r.Fail(format.BadField(name, "%q is not a whole number of 0 or more", format.Clip(s, 40)))
	}
	return n
}

// Count parses a whole number that fits an int32; "" is 0, and a larger one is the largest.
func (r *Reader) Count(name string) int { return int(min(r.Whole(name), 1<<31-1)) }

// Float parses a number that may have a fraction.
func (r *Reader) Float(name string) float64 {
	s := r.Text(name)
	if s == "" {
		return 0
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f < 0 || f > 1e15 {
		r.Fail(format.BadField(name, "%q is not a number of 0 or more", format.Clip(s, 40)))
		return 0
	}
	return f
}

// Duration parses a duration; "" is 0.
func (r *Reader) Duration(name string) time.Duration {
	s := r.Text(name)
	if s == "" {
		return 0
	}
	d, err := humanize.Duration(s)
	if err == nil && d < 0 {
		err = fmt.Errorf("%q is negative", format.Clip(s, 40))
	}
	if err != nil {
		r.Fail(format.BadField(name, "%v", err))
		return 0
	}
	return d
}

// Time parses a time, or a duration from now.
func (r *Reader) Time(name string) time.Time {
	s := r.Text(name)
	if s == "" {
		return time.Time{}
	}
	if t, err := humanize.Time(s); err == nil {
		return t
	}
	if d, err := humanize.Duration(strings.TrimPrefix(s, "in ")); err == nil && d >= 0 {
		return r.now.Add(d)
	}
	r.Fail(format.BadField(name, "%q is neither a time such as 2026-01-31T12:00:00Z nor a delay such as 10m", format.Clip(s, 40)))
	return time.Time{}
}

// Past parses a time or an age; "" is the zero time.
func (r *Reader) Past(name string) time.Time {
	s := r.Text(name)
	if s == "" {
		return time.Time{}
	}
	at, err := humanize.Past(s, r.now)
	if err != nil {
		r.Fail(format.BadField(name, "%v", err))
	}
	return at
}

// PastHint explains how to write a time in the past.
const PastHint = "Such as 10m for 10 minutes ago, or 2026-01-31T12:00:00Z."

// NumberText formats a number for a form field; "" for 0.
func NumberText(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// DurationText formats a duration for a form field, so that humanize.Duration can parse it; "" for none.
func DurationText(d time.Duration) string {
	switch {
	case d == 0:
		return ""
	case d == pawltype.NoWait:
		return "0s"
	case d%(24*time.Hour) == 0:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
	return humanize.DurationText(d)
}

// List parses a list that ListText formatted.
func (r *Reader) List(name string) (all []string) {
	for rest := strings.TrimSpace(r.Text(name)); rest != ""; rest = strings.TrimSpace(rest) {
		item, after, _ := strings.Cut(rest, ",")
		if quoted, text, ok := quotedPrefix(rest); ok {
			item = text
			if after = strings.TrimSpace(rest[len(quoted):]); after != "" && after[0] != ',' {
				r.Fail(format.BadField(name, "%s is followed by neither a comma nor the end", format.Clip(quoted, 60)))
				return nil
			}
			after = strings.TrimPrefix(after, ",")
		} else {
			item = strings.TrimSpace(item)
		}
		if rest = after; item != "" {
			all = append(all, item)
		}
	}
	return all
}

// ListText formats a list for a form field, with quotes where a comma or a space would be lost.
func ListText(items []string) string {
	words := make([]string, len(items))
	for i, item := range items {
		if words[i] = item; strings.Contains(item, ",") || needsQuotes(item) {
			words[i] = strconv.Quote(item)
		}
	}
	return strings.Join(words, ", ")
}

// needsQuotes reports whether a text would be read back as another without quotes.
func needsQuotes(s string) bool {
	return strings.TrimSpace(s) != s || strings.ContainsAny(s, "\r\n\x00") || strings.HasPrefix(s, `"`)
}

// quotedPrefix returns what a text begins with in double quotes, and what that stands for. Others mean nothing.
func quotedPrefix(s string) (quoted, text string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		return "", "", false
	}
	quoted, err := strconv.QuotedPrefix(s)
	if err != nil {
		return "", "", false
	}
	text, err = strconv.Unquote(quoted)
	return quoted, text, err == nil
}

// HeadersText formats headers for a form field: a line for each, with quotes where a line end, a colon or a space would be lost.
func HeadersText(headers map[string]string) string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		value := headers[name]
		if needsQuotes(value) {
			value = strconv.Quote(value)
		}
		if strings.Contains(name, ":") || needsQuotes(name) {
			name = strconv.Quote(name)
		}
		lines = append(lines, name+": "+value)
	}
	return strings.Join(lines, "\n")
}

// Headers parses lines that HeadersText formatted.
func (r *Reader) Headers(name string) map[string]string {
	all := map[string]string{}
	for line := range strings.SplitSeq(r.Text(name), "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		key, value, ok := strings.Cut(line, ":")
		if quoted, text, found := quotedPrefix(line); found {
			value, ok = strings.CutPrefix(strings.TrimSpace(line[len(quoted):]), ":")
			key = text
		} else {
			key = strings.TrimSpace(key)
		}
		if !ok || key == "" {
			r.Fail(format.BadField(name, "%q is not a name, a colon and a value", format.Clip(line, 60)))
			return nil
		}
		if _, twice := all[key]; twice {
			r.Fail(format.BadField(name, "%q is given twice", format.Clip(key, 60)))
		}
		value = strings.TrimSpace(value)
		if quoted, text, found := quotedPrefix(value); found && quoted == value {
			value = text
		}
		all[key] = value
	}
	return all
}

// SplitList splits a comma-separated list.
func SplitList(s string) (all []string) {
	for _, part := range strings.Split(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			all = append(all, part)
		}
	}
	return all
}

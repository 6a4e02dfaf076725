package rest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// The readers of REST's bodies. The standard library's decoder takes a field that differs in case for the same, lets the
// last of two equal ones win, and can't name the field that a wrong value stands in.

// maxBodyDepth bounds the nesting of a body, payloads apart: a chain of tasks takes 2 for each.
const maxBodyDepth = 64

// jsonReader reads a body value by value. Every refusal names the field by its path.
type jsonReader struct {
	scanner
	made *budget
}

// budget is how much memory may be made of a body, in bytes.
type budget struct {
	left, spent int
	more        func() error // waits for contract.MaxExtra more; nil: there is no more
}

// What is made of a body's parts, about: a task is the largest object.
const (
	objectCost = 320
	partCost   = 64 // a field or an item, with its name
)

// spend notes that memory is made of the body.
func (b *budget) spend(n int) error {
	if n <= b.left {
		b.left, b.spent = b.left-n, b.spent+n
		return nil
	}
	if b.more == nil {
		return contract.TooManyParts("body")
	}
	if err := b.more(); err != nil {
		return err
	}
	b.left, b.more = b.left+contract.MaxExtra, nil
	return b.spend(n)
}

// readBody reads a body that is one object, calling field for each of its fields. No body at all is an empty object.
func readBody(body []byte, made *budget, field func(r *jsonReader, name string) error) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	if !utf8.Valid(body) {
		return task.Invalid("body", "not JSON: it is not UTF-8")
	}
	r := &jsonReader{scanner{b: body, most: maxBodyDepth}, made}
	r.space()
	if r.peek() != '{' {
		return task.Invalid("body", "is not a JSON object")
	}
	if err := r.fields("", func(name string) error { return field(r, name) }); err != nil {
		return err
	}
	if r.space(); r.i < len(r.b) {
		return task.Invalid("body", "not JSON: %v", r.bad("nothing more"))
	}
	return nil
}

// refused makes sure that an error names a place: what the scanner says is about the body.
func refused(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := task.AsError(err); ok {
		return err
	}
	return task.Invalid("body", "not JSON: %v", err)
}

// fields reads an object. A name may stand in it once.
func (r *jsonReader) fields(path string, field func(name string) error) error {
	if r.peek() != '{' {
		return r.wrong(path, "an object")
	}
	if err := r.made.spend(objectCost); err != nil {
		return err
	}
	var seen []string
	return refused(r.list('}', func() error {
		name, err := r.name()
		if err == nil {
			err = r.made.spend(partCost)
		}
		if err != nil {
			return err
		}
		for _, s := range seen {
			if s == name {
				return task.Invalid(join(path, name), "is there twice")
			}
		}
		seen = append(seen, name)
		if len(seen) > maxFields {
			return task.Invalid(orBody(path), "more than %d fields", maxFields)
		}
		return field(name)
	}))
}

// maxFields bounds the fields of an object: no request has so many, headers and weights included.
const maxFields = 200

func (r *jsonReader) name() (string, error) {
	from := r.i
	if r.peek() != '"' {
		return "", r.bad("the name of a field")
	}
	if err := r.text(); err != nil {
		return "", err
	}
	name, err := unquote(r.b[from:r.i])
	if err != nil {
		return "", task.Invalid("body", "the name of a field %v", err)
	}
	r.space()
	if r.peek() != ':' {
		return "", r.bad("a colon")
	}
	r.i++
	r.space()
	return name, nil
}

// unknown refuses a field that there is none of.
func unknown(path, name string) error {
	return task.Invalid(join(path, task.Cut(name, 64)), "there is no such field")
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func orBody(path string) string {
	if path == "" {
		return "body"
	}
	return path
}

// unquote is the text of a string that was walked over. The standard library would read each half of a surrogate pair as U+FFFD, so that
// two keys would be one.
func unquote(quoted []byte) (string, error) {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), nil
	}
	if half := halfPair(inner); half != nil {
		return "", fmt.Errorf("has %s, half of a surrogate pair", half)
	}
	var s string
	_ = json.Unmarshal(quoted, &s) // it is a string: it was walked over
	return s, nil
}

// escaped is the length of an escape such as \u00e9.
const escaped = 6

// halfPair finds the escape of half of a surrogate pair; nil: all are whole.
func halfPair(text []byte) []byte {
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		one := utf16Unit(text[i:])
		switch {
		case !utf16.IsSurrogate(one):
			i++ // what is escaped is no backslash that escapes
		case utf16.DecodeRune(one, utf16Unit(text[i+escaped:])) == utf8.RuneError:
			return text[i : i+escaped]
		default:
			i += 2*escaped - 1
		}
	}
	return nil
}

// utf16Unit is what an escape at the beginning of a text stands for; -1: it begins with no such escape.
func utf16Unit(text []byte) rune {
	if len(text) < escaped || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(text[2:escaped]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}

// wrong refuses the value that stands here.
func (r *jsonReader) wrong(path, want string) error {
	from := r.i
	if _, err := r.any(); err != nil {
		return err
	}
	return task.Invalid(orBody(path), "%s is not %s", task.Cut(string(r.b[from:r.i]), 64), want)
}

// any walks over a value and returns its bytes.
func (r *jsonReader) any() ([]byte, error) {
	s := scanner{b: r.b, i: r.i, most: maxPayloadDepth}
	err := s.value()
	from := r.i
	r.i = s.i
	if err == nil && r.b[from] == '"' { // perhaps of base64, of which bytes will be made
		err = r.made.spend(r.i - from)
	}
	return r.b[from:r.i], refused(err)
}

// items reads an array.
func (r *jsonReader) items(path string, item func(i int) error) error {
	if r.peek() != '[' {
		return r.wrong(path, "a list")
	}
	n := 0
	return refused(r.array(func() error {
		if err := r.made.spend(partCost); err != nil {
			return err
		}
		err := item(n)
		n++
		return err
	}))
}

func (r *jsonReader) str(path string) (string, error) {
	if r.peek() != '"' {
		return "", r.wrong(path, "a string")
	}
	from := r.i
	if err := r.text(); err != nil {
		return "", refused(err)
	}
	if err := r.made.spend(r.i - from); err != nil {
		return "", err
	}
	s, err := unquote(r.b[from:r.i])
	if err != nil {
		return "", task.Invalid(path, "%v", err)
	}
	return s, nil
}

func (r *jsonReader) setStr(to *string, path string) (err error) {
	*to, err = r.str(path)
	return err
}

func (r *jsonReader) strs(path string, most int) (list []string, err error) {
	list = []string{}
	err = r.items(path, func(i int) error {
		if i == most {
			return task.Invalid(path, "more than %d items", most)
		}
		s, err := r.str(path)
		list = append(list, s)
		return err
	})
	return list, err
}

func (r *jsonReader) boolean(to *bool, path string) error {
	if c := r.peek(); c != 't' && c != 'f' {
		return r.wrong(path, "true or false")
	}
	*to = r.peek() == 't'
	if *to {
		return refused(r.word("true"))
	}
	return refused(r.word("false"))
}

// integer reads a whole number that is at least least and not more than most.
func (r *jsonReader) integer(path string, least, most int64) (int64, error) {
	from := r.i
	if c := r.peek(); c != '-' && (c < '0' || c > '9') {
		return 0, r.wrong(path, "a whole number")
	}
	if err := r.number(); err != nil {
		return 0, refused(err)
	}
	text := string(r.b[from:r.i])
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, task.Invalid(path, "%s is not a whole number", task.Cut(text, 64))
	}
	if n < least || n > most {
		return 0, task.Invalid(path, "%d is not between %d and %d", n, least, most)
	}
	return n, nil
}

func (r *jsonReader) float(path string) (float64, error) {
	from := r.i
	if c := r.peek(); c != '-' && (c < '0' || c > '9') {
		return 0, r.wrong(path, "a number")
	}
	if err := r.number(); err != nil {
		return 0, refused(err)
	}
	text := string(r.b[from:r.i])
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, task.Invalid(path, "%s is out of range", task.Cut(text, 64))
	}
	return f, nil
}

func (r *jsonReader) span(path string) (*durationpb.Duration, error) {
	s, err := r.str(path)
	if err != nil {
		return nil, err
	}
	return spanText(path, s)
}

// spanText reads a duration as people write it: 30s, 1h30m.
func spanText(path, s string) (*durationpb.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return nil, task.Invalid(path, `%q is not a duration such as "30s" or "1h30m"`, task.Cut(s, 64))
	}
	return durationpb.New(d), nil
}

func (r *jsonReader) time(path string) (*timestamppb.Timestamp, error) {
	s, err := r.str(path)
	if err != nil {
		return nil, err
	}
	return timeText(path, s)
}

// timeText reads a time of RFC 3339.
func timeText(path, s string) (*timestamppb.Timestamp, error) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return nil, task.Invalid(path, `%q is not a time with a zone, such as "2026-11-21T08:30:00Z"`, task.Cut(s, 64))
	}
	return timestamppb.New(t), nil
}

// blob reads bytes: base64 in a string.
func (r *jsonReader) blob(path string) ([]byte, error) {
	s, err := r.str(path)
	if err != nil {
		return nil, err
	}
	return blobText(path, s)
}

func blobText(path, s string) ([]byte, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil {
		return nil, task.Invalid(path, "%q is not base64", task.Cut(s, 64))
	}
	return b, nil
}

// dataOf is what a payload or result stands for: itself, or the bytes of its base64 if the content type is not JSON's.
func dataOf(path string, value []byte, contentType string) ([]byte, error) {
	if value == nil || contract.IsJSON(contentType) {
		return value, nil
	}
	if len(value) < 2 || value[0] != '"' {
		return nil, task.Invalid(path, "is not a string of base64, as content_type %q needs", task.Cut(contentType, 64))
	}
	text, err := unquote(value)
	if err != nil {
		return nil, task.Invalid(path, "%v", err)
	}
	return blobText(path, text)
}

package apijson

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// The readers of bodies, built on jsontext's decoder. Unmarshalling into structs would accept field names that differ in
// case, and could not name the field with a wrong value.

const (
	// maxBodyDepth bounds the nesting of a body, payloads apart: each task of a chain takes 2.
	maxBodyDepth = 64
	// maxPayloadDepth bounds the nesting of payloads and results. Nothing here looks inside them, but their readers do.
	maxPayloadDepth = 1000
)

// asWritten allows whatever a payload may contain as JSON: duplicate names, and escapes of unpaired surrogates. In the request's
// own names and strings the reader refuses them.
var asWritten = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// Reader reads a body value by value. Every refusal names the field by its path.
type Reader struct {
	body []byte
	json *jsontext.Decoder
	made *Budget
	// maxItems bounds the items of a list that has no limit of its own.
	maxItems int
	typed    typedBytes // of the message being read
	// malformed is the syntax error that ended reading.
	malformed error
}

func newReader(body []byte, made *Budget) *Reader {
	return &Reader{body: body, json: jsontext.NewDecoder(bytes.NewBuffer(body), asWritten...), made: made}
}

// Budget is how much memory may be used to decode a body, in bytes.
type Budget struct {
	Left, Spent int
	More        func() error // waits for contract.MaxExtra more; nil: there is no more
}

// Approximate sizes of what a body is decoded to: a task is the largest object.
const (
	objectCost = 320
	partCost   = 64 // a field or an item, with its name
)

// spend accounts for memory used to decode the body.
func (b *Budget) spend(n int) error {
	if n <= b.Left {
		b.Left, b.Spent = b.Left-n, b.Spent+n
		return nil
	}
	if b.More == nil {
		return contract.TooManyParts("body")
	}
	if err := b.More(); err != nil {
		return err
	}
	b.Left, b.More = b.Left+contract.MaxExtra, nil
	return b.spend(n)
}

// Read reads a body that is one object, calling field for each of its fields. An empty body is an empty object.
func Read(body []byte, made *Budget, maxItems int, field func(r *Reader, name string) error) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	if !utf8.Valid(body) {
		return task.Invalid("body", "not JSON: it is not UTF-8")
	}
	r := newReader(body, made)
	r.maxItems = maxItems
	if r.json.PeekKind() != '{' {
		return task.Invalid("body", "is not a JSON object")
	}
	err := r.fields("", func(name string) error { return field(r, name) })
	if err == nil {
		err = r.typed.done("")
	}
	if err != nil {
		return err
	}
	return r.end(r.json.InputOffset())
}

// end refuses anything after the body's value.
func (r *Reader) end(at int64) error {
	if _, err := r.json.ReadToken(); !errors.Is(err, io.EOF) {
		return task.Invalid("body", "not JSON: there is data after the object, which ends at byte %d", at)
	}
	return nil
}

// notJSON returns the refusal for a syntax error.
func (r *Reader) notJSON(err error) error {
	r.malformed = task.Invalid("body", "not JSON: %s", syntaxText(err))
	return r.malformed
}

// syntaxText says what is wrong with the JSON, where, and in which of its fields.
func syntaxText(err error) string {
	syntax, ok := errors.AsType[*jsontext.SyntacticError](err)
	if !ok {
		return strings.TrimPrefix(err.Error(), "jsontext: ")
	}
	if errors.Is(syntax.Err, io.ErrUnexpectedEOF) {
		return fmt.Sprintf("it ends within a value, after %d bytes", syntax.ByteOffset)
	}
	text := strings.TrimPrefix(syntax.Err.Error(), "jsontext: ")
	if syntax.JSONPointer != "" {
		text += " within " + strconv.Quote(task.Cut(string(syntax.JSONPointer), 64))
	}
	return fmt.Sprintf("%s at byte %d", text, syntax.ByteOffset)
}

// raw reads a value and returns its bytes, which alias the body.
func (r *Reader) raw() ([]byte, error) {
	value, err := r.json.ReadValue()
	if err != nil {
		return nil, r.notJSON(err)
	}
	end := r.json.InputOffset()
	return r.body[end-int64(len(value)) : end], nil
}

// token reads a token. It refuses brackets that are nested too deeply.
func (r *Reader) token(path string) (jsontext.Token, error) {
	t, err := r.json.ReadToken()
	switch {
	case err != nil:
		return t, r.notJSON(err)
	case r.json.StackDepth() > maxBodyDepth:
		return t, task.Invalid(orBody(path), "is nested deeper than %d", maxBodyDepth)
	}
	return t, nil
}

// skip reads to the end of the list item in which decoding stopped: until the list at a depth has more than n items.
func (r *Reader) skip(depth int, n int64) error {
	for {
		if r.json.StackDepth() == depth {
			if _, items := r.json.StackIndex(depth); items > n {
				return nil
			}
		}
		var err error
		if kind := r.json.PeekKind(); kind == '}' || kind == ']' {
			_, err = r.json.ReadToken()
		} else {
			err = r.json.SkipValue()
		}
		if err != nil {
			return r.notJSON(err)
		}
	}
}

// fields reads an object. A name may occur once.
func (r *Reader) fields(path string, field func(name string) error) error {
	return r.upTo(maxFields, path, field)
}

// upTo reads an object of at most the given number of fields.
func (r *Reader) upTo(limit int, path string, field func(name string) error) error {
	if r.json.PeekKind() != '{' {
		return r.wrong(path, "an object")
	}
	if err := r.made.spend(objectCost); err != nil {
		return err
	}
	_, err := r.token(path)
	for seen := []string(nil); err == nil && r.json.PeekKind() != '}'; {
		var name string
		if name, err = r.name(path, seen, limit); err == nil {
			seen = append(seen, name)
			err = field(name)
		}
	}
	if err != nil {
		return err
	}
	_, err = r.token(path)
	return err
}

// maxFields bounds the fields of an object: no request has as many, headers and weights included.
const maxFields = 200

// name reads the name of a field, and refuses a duplicate.
func (r *Reader) name(path string, seen []string, limit int) (string, error) {
	quoted, err := r.raw()
	if err == nil {
		err = r.made.spend(partCost)
	}
	if err != nil {
		return "", err
	}
	name, err := unquote(quoted)
	switch {
	case err != nil:
		return "", task.Invalid(orBody(path), "the name of a field %v", err)
	case slices.Contains(seen, name):
		return "", task.Invalid(join(path, name), "is given twice")
	case len(seen) == limit:
		return "", task.Invalid(orBody(path), "more than %d fields", limit)
	}
	return name, nil
}

// Unknown refuses an unknown field.
func Unknown(path, name string) error {
	return task.Invalid(join(path, task.Cut(name, 64)), "unknown field")
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

// unquote decodes a string. It refuses an unpaired surrogate: decoded as U+FFFD, two different keys would become one.
func unquote(quoted []byte) (string, error) {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), nil
	}
	text, err := jsontext.AppendUnquote(nil, quoted)
	if err != nil {
		return "", fmt.Errorf("has half of a surrogate pair (%s)", strings.TrimPrefix(err.Error(), "jsontext: "))
	}
	return string(text), nil
}

// wrong refuses the next value.
func (r *Reader) wrong(path, want string) error {
	value, err := r.any()
	if err != nil {
		return err
	}
	return task.Invalid(orBody(path), "%s is not %s", task.Cut(string(value), 64), want)
}

// any reads a value of any kind and returns its bytes.
func (r *Reader) any() ([]byte, error) {
	value, err := r.raw()
	if err != nil {
		return nil, err
	}
	if value[0] == '"' { // may be base64, to be decoded into bytes
		return value, r.made.spend(len(value))
	}
	if deeper(value, maxPayloadDepth) {
		return nil, task.Invalid("body", "not JSON: it is nested deeper than %d", maxPayloadDepth)
	}
	return value, nil
}

// items reads an array.
func (r *Reader) items(path string, item func(i int) error) error {
	if r.json.PeekKind() != '[' {
		return r.wrong(path, "a list")
	}
	_, err := r.token(path)
	for i := 0; err == nil && r.json.PeekKind() != ']'; i++ {
		if err = r.made.spend(partCost); err == nil {
			err = item(i)
		}
	}
	if err != nil {
		return err
	}
	_, err = r.token(path)
	return err
}

func (r *Reader) str(path string) (string, error) {
	if r.json.PeekKind() != '"' {
		return "", r.wrong(path, "a string")
	}
	quoted, err := r.any()
	if err != nil {
		return "", err
	}
	s, err := unquote(quoted)
	if err != nil {
		return "", task.Invalid(path, "%v", err)
	}
	return s, nil
}

func (r *Reader) strs(path string, limit int) (list []string, err error) {
	list = []string{}
	err = r.items(path, func(i int) error {
		if i == limit {
			return task.Invalid(path, "more than %d items", limit)
		}
		s, err := r.str(path)
		list = append(list, s)
		return err
	})
	return list, err
}

func (r *Reader) boolean(to *bool, path string) error {
	if kind := r.json.PeekKind(); kind != 't' && kind != 'f' {
		return r.wrong(path, "true or false")
	}
	word, err := r.token(path)
	if err != nil {
		return err
	}
	*to = word.Bool()
	return nil
}

// integer reads an integer between low and high.
func (r *Reader) integer(path string, low, high int64) (int64, error) {
	if r.json.PeekKind() != '0' {
		return 0, r.wrong(path, "a whole number")
	}
	text, err := r.raw()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return 0, task.Invalid(path, "%s is not a whole number", task.Cut(string(text), 64))
	}
	if n < low || n > high {
		return 0, task.Invalid(path, "%d is not between %d and %d", n, low, high)
	}
	return n, nil
}

func (r *Reader) float(path string) (float64, error) {
	if r.json.PeekKind() != '0' {
		return 0, r.wrong(path, "a number")
	}
	text, err := r.raw()
	if err != nil {
		return 0, err
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return 0, task.Invalid(path, "%s is out of range", task.Cut(string(text), 64))
	}
	return f, nil
}

// rate parses tasks per second: "50/s", "30/m", "1000/h". Other intervals, as in 100/10s, are for people: the command line parses
// them.
func (r *Reader) rate(path string) (float64, error) {
	s, err := r.str(path)
	if err != nil {
		return 0, err
	}
	number, per, _ := strings.Cut(s, "/")
	f, err := strconv.ParseFloat(number, 64)
	seconds := map[string]float64{"s": 1, "m": 60, "h": 3600}[per]
	switch {
	case err != nil || seconds == 0 || !(f > 0):
		return 0, task.Invalid(path, `%q is not a rate such as "50/s", "30/m" or "1000/h": a number above 0, in a second, a `+
			`minute or an hour`,
			task.Cut(s, 64))
	case f/seconds > contract.MaxRate:
		return 0, task.Invalid(path, "%q is more than %d/s", task.Cut(s, 64), int(contract.MaxRate))
	}
	return f / seconds, nil
}

// spanForm is the form of durations, which the OpenAPI description publishes: Go accepts more. The calls refuse what is negative, with
// their bounds.
var spanForm = regexp.MustCompile(`^([0-9]+(\.[0-9]*)?(h|m|s|ms|us|µs|ns))+$|^0$`)

// spanText parses a duration: 30s, 1h30m.
func spanText(path, s string) (*durationpb.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || !spanForm.MatchString(strings.TrimPrefix(s, "-")) || d == 0 && s[0] == '-' {
		return nil, task.Invalid(path, `%q is not a duration such as "30s" or "1h30m"`, task.Cut(s, 64))
	}
	return durationpb.New(d), nil
}

// timeText parses an RFC 3339 time.
func timeText(path, s string) (*timestamppb.Timestamp, error) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return nil, task.Invalid(path, `%q is not a time with a zone, such as "2026-11-21T08:30:00Z"`, task.Cut(s, 64))
	}
	return timestamppb.New(t), nil
}

// blobText decodes base64.
func blobText(path, s string) ([]byte, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil || strings.ContainsAny(s, "\r\n") { // which the decoder ignores
		return nil, task.Invalid(path, "%q is not base64", task.Cut(s, 64))
	}
	return b, nil
}

// Data returns the data of a payload or result: the value itself, or the decoded base64 if the content type is not JSON.
func Data(path string, value []byte, contentType string) ([]byte, error) {
	if value == nil || contract.IsJSON(contentType) {
		return value, nil
	}
	if len(value) < 2 || value[0] != '"' {
		return nil, task.Invalid(path, "is not a base64 string, which content_type %q requires", task.Cut(contentType, 64))
	}
	text, err := unquote(value)
	if err != nil {
		return nil, task.Invalid(path, "%v", err)
	}
	return blobText(path, text)
}

// spanOf returns the duration in a message.
func spanOf(m protoreflect.Message) time.Duration {
	return m.Interface().(*durationpb.Duration).AsDuration()
}

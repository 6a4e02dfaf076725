package query

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/pawlq/pawl/internal/task"
)

// PayloadField is a field of a JSON payload and the value that it must have.
type PayloadField struct {
	Path  string // keys of objects and indexes of arrays, separated by dots; \ escapes the next character
	Value string // a string of this text, a number of this value, true, false or null
}

// Bounds of conditions on payloads.
const (
	maxPayloadFields = 8
	maxPath          = 256 // bytes
	maxPathKeys      = 16
	maxPayloadValue  = 1 << 10
	// payloadPrice is the cost of parsing a byte of JSON relative to searching it for a string.
	payloadPrice = 4
)

// CheckPayload returns an error for conditions on payloads that are out of bounds.
func CheckPayload(fields []PayloadField) error {
	if len(fields) > maxPayloadFields {
		return task.Invalid("payload", "%d conditions, at most %d are allowed", len(fields), maxPayloadFields)
	}
	for _, f := range fields {
		switch keys := 1 + strings.Count(f.Path, "."); {
		case len(f.Path) > maxPath:
			return task.Invalid("payload", "the path %q has %d bytes, at most %d are allowed", task.Cut(f.Path, 64), len(f.Path), maxPath)
		case len(f.Value) > maxPayloadValue:
			return task.Invalid("payload", "the value of %q has %d bytes, at most %d are allowed", task.Cut(f.Path, 64),
				len(f.Value), maxPayloadValue)
		case keys > maxPathKeys:
			return task.Invalid("payload", "the path %q has %d keys, at most %d are allowed", task.Cut(f.Path, 64), keys, maxPathKeys)
		}
		for path, more := f.Path, true; more; {
			var key string
			if key, path, more = nextKey(path); key == "" {
				return task.Invalid("payload", "the path %q has an empty key: a path is keys with dots between, such as customer.id",
					task.Cut(f.Path, 64))
			}
		}
	}
	return nil
}

// PayloadPaths returns the paths of the payload fields that the filter names.
func (f *Filter) PayloadPaths() (paths []string) {
	for _, p := range f.Payload {
		paths = append(paths, p.Path)
	}
	return paths
}

// nextKey cuts the first key off a path.
func nextKey(path string) (key, rest string, more bool) {
	if end := strings.IndexAny(path, `.\`); end < 0 {
		return path, "", false
	} else if path[end] == '.' {
		return path[:end], path[end+1:], true
	}
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		switch {
		case path[i] == '.':
			return b.String(), path[i+1:], true
		case path[i] == '\\' && i+1 < len(path):
			i++
		}
		b.WriteByte(path[i])
	}
	return b.String(), "", false
}

// matches reports whether a payload has the field with the value. It parses no further than that.
func (f *PayloadField) matches(payload []byte) bool {
	d := jsontext.NewDecoder(bytes.NewBuffer(payload), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for path, more := f.Path, true; more; {
		var key string
		key, path, more = nextKey(path)
		if !enter(d, key) {
			return false
		}
	}
	value, err := d.ReadToken()
	if err != nil {
		return false
	}
	switch value.Kind() {
	case '"', 't', 'f', 'n':
		return value.String() == f.Value
	case '0':
		return sameNumber(value.String(), f.Value)
	}
	return false
}

// enter advances to the value of a key of the next object, or of an index of the next array; false: there is none.
func enter(d *jsontext.Decoder, key string) bool {
	open, err := d.ReadToken()
	if err != nil {
		return false
	}
	switch open.Kind() {
	case '{':
		for d.PeekKind() == '"' {
			name, err := d.ReadToken()
			if err != nil {
				return false
			}
			if name.String() == key {
				return true
			}
			if d.SkipValue() != nil {
				return false
			}
		}
	case '[':
		index, err := strconv.ParseUint(key, 10, 32)
		for ; err == nil && index > 0 && d.PeekKind() != ']'; index-- {
			err = d.SkipValue()
		}
		return err == nil && d.PeekKind() != ']'
	}
	return false
}

// sameNumber reports whether two strings are numbers of the same value, such as 42 and 4.20e1.
func sameNumber(a, b string) bool {
	if a == b {
		return true
	}
	x, ok := numberOf(a)
	y, okY := numberOf(b)
	return ok && okY && x == y
}

// decimal is ± 0.digits × 10^exponent, without zeros around the digits.
type decimal struct {
	negative bool
	digits   string
	exponent int
}

// numberOf parses a JSON number; false: it is not one.
func numberOf(s string) (n decimal, ok bool) {
	if v := jsontext.Value(s); v.Kind() != '0' || !v.IsValid() || strings.ContainsAny(s, " \t\r\n") {
		return n, false
	}
	s, n.negative = strings.CutPrefix(s, "-")
	if at := strings.IndexAny(s, "eE"); at >= 0 {
		var err error
		if n.exponent, err = strconv.Atoi(s[at+1:]); err != nil || n.exponent > 1<<30 || n.exponent < -1<<30 {
			return n, false
		}
		s = s[:at]
	}
	whole, part, _ := strings.Cut(s, ".")
	digits := strings.TrimLeft(whole+part, "0")
	n.exponent += len(whole) - (len(whole) + len(part) - len(digits))
	if n.digits = strings.TrimRight(digits, "0"); n.digits == "" {
		return decimal{}, true // also for -0
	}
	return n, true
}

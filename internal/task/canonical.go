package task

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is how deeply JSON may be nested in canonical form. It bounds the stack, because a unique key is made before
// the payload is checked, and the work, because each level copies all levels below it if its members must be sorted.
const maxDepth = 64

// AppendContent appends what tells a task from another for the keys that recognize a repeat: its type, its content type, and its payload in
// canonical form. A payload that is nested more deeply than maxDepth stays as it is.
func (s *Spec) AppendContent(b []byte) []byte {
	b = append(append(b, s.Type...), 0)
	if s.ContentType != "" && s.ContentType != "application/json" {
		b = append(append(b, s.ContentType...), 0)
		return append(b, s.Payload...)
	}
	b = append(b, 0)
	start := len(b)
	if w := (canonical{in: s.Payload, out: b}); w.value() && len(w.space()) == 0 {
		return w.out
	}
	return append(b[:start], s.Payload...)
}

// canonical writes JSON in the form that all notations of a value share, whatever program, SDK or person has written
// it: no spaces, members in the order of the bytes of their names, strings with few escapes, numbers as exact decimals.
// RFC 8785 would round numbers to 64-bit floats, and take two ids of 19 digits for one. It reads as much as is needed
// to write valid JSON; what is not valid, it may reject or not.
type canonical struct {
	in, out  []byte
	unsorted []byte // buffer for sort
	depth    int
}

// member is a member of an object in out: its name, and where it ends.
type member struct{ start, name, end int }

// space skips white space and returns the rest.
func (w *canonical) space() []byte {
	for len(w.in) > 0 && isSpace(w.in[0]) {
		w.in = w.in[1:]
	}
	return w.in
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// take takes the next byte other than white space, and reports whether there is one.
func (w *canonical) take() (c byte, ok bool) {
	if len(w.space()) == 0 {
		return 0, false
	}
	c, w.in = w.in[0], w.in[1:]
	return c, true
}

// value writes the next value, and reports whether there is one.
func (w *canonical) value() bool {
	if len(w.space()) == 0 {
		return false
	}
	switch w.in[0] {
	case '{', '[':
		if w.depth == maxDepth {
			return false
		}
		w.depth++
		ok := false
		if w.in[0] == '{' {
			ok = w.object()
		} else {
			ok = w.array()
		}
		w.depth--
		return ok
	case '"':
		return w.text()
	}
	n := 0
	for n < len(w.in) && w.in[n] != ',' && w.in[n] != ']' && w.in[n] != '}' && !isSpace(w.in[n]) {
		n++
	}
	if c := w.in[0]; c == '-' || '0' <= c && c <= '9' {
		w.out = appendDecimal(w.out, w.in[:n])
	} else {
		w.out = append(w.out, w.in[:n]...) // true, false or null
	}
	w.in = w.in[n:]
	return n > 0
}

func (w *canonical) array() bool {
	w.out, w.in = append(w.out, '['), w.in[1:]
	if rest := w.space(); len(rest) > 0 && rest[0] == ']' {
		w.out, w.in = append(w.out, ']'), rest[1:]
		return true
	}
	for w.value() {
		c, ok := w.take()
		w.out = append(w.out, c)
		if c != ',' {
			return ok && c == ']'
		}
	}
	return false
}

func (w *canonical) object() bool {
	var few [8]member
	members := few[:0]
	w.out, w.in = append(w.out, '{'), w.in[1:]
	if rest := w.space(); len(rest) > 0 && rest[0] == '}' {
		w.out, w.in = append(w.out, '}'), rest[1:]
		return true
	}
	for start := len(w.out); ; {
		m := member{start: len(w.out)}
		if len(w.space()) == 0 || w.in[0] != '"' || !w.text() {
			return false
		}
		m.name = len(w.out)
		if c, _ := w.take(); c != ':' {
			return false
		}
		w.out = append(w.out, ':')
		if !w.value() {
			return false
		}
		w.out = append(w.out, ',')
		m.end = len(w.out)
		members = append(members, m)
		switch c, _ := w.take(); c {
		case ',':
		case '}':
			w.sort(start, members)
			w.out[len(w.out)-1] = '}'
			return true
		default:
			return false
		}
	}
}

// sort sorts the members of an object, which begin at start. Of those with one name, which only the text of a program
// can have, the order stays.
func (w *canonical) sort(start int, members []member) {
	byName := func(a, b member) int { return bytes.Compare(w.out[a.start:a.name], w.out[b.start:b.name]) }
	if slices.IsSortedFunc(members, byName) {
		return
	}
	slices.SortStableFunc(members, byName)
	w.unsorted = append(w.unsorted[:0], w.out[start:]...)
	w.out = w.out[:start]
	for _, m := range members {
		w.out = append(w.out, w.unsorted[m.start-start:m.end-start]...)
	}
}

// text writes a string.
func (w *canonical) text() bool {
	n, escaped := 1, false
	for ; n < len(w.in) && w.in[n] != '"'; n++ {
		if w.in[n] == '\\' {
			n, escaped = n+1, true
		}
	}
	if n++; n > len(w.in) {
		return false
	}
	quoted := w.in[:n]
	w.in = w.in[n:]
	if escaped {
		return w.unescaped(quoted)
	}
	w.out = append(w.out, quoted...)
	return true
}

// unescaped writes a string with escapes for nothing but quotes, backslashes, control characters, and halves of surrogate pairs.
func (w *canonical) unescaped(quoted []byte) bool {
	w.out = append(w.out, '"')
	for in := quoted[1 : len(quoted)-1]; len(in) > 0; {
		if in[0] != '\\' {
			w.out, in = append(w.out, in[0]), in[1:]
			continue
		}
		r, n := escape(in)
		if pair, m := escape(in[n:]); n == 6 && m == 6 && utf16.DecodeRune(r, pair) != unicode.ReplacementChar {
			r, n = utf16.DecodeRune(r, pair), 12
		}
		switch {
		case n == 0:
			return false
		case r == '"', r == '\\':
			w.out = append(w.out, '\\', byte(r))
		case r < ' ', utf16.IsSurrogate(r):
			w.out = fmt.Appendf(w.out, `\u%04x`, r)
		default:
			w.out = utf8.AppendRune(w.out, r)
		}
		in = in[n:]
	}
	w.out = append(w.out, '"')
	return true
}

// escape returns the character of the escape with which a text begins, and how long the escape is; 0: it begins with none.
func escape(in []byte) (rune, int) {
	switch {
	case len(in) < 2 || in[0] != '\\':
		return 0, 0
	case in[1] != 'u':
		if at := strings.IndexByte(`bfnrt`, in[1]); at >= 0 {
			return rune("\b\f\n\r\t"[at]), 2
		}
		return rune(in[1]), 2 // a quote, a backslash or a slash
	case len(in) < 6:
		return 0, 0
	}
	n, err := strconv.ParseUint(string(in[2:6]), 16, 16)
	if err != nil {
		return 0, 0
	}
	return rune(n), 6
}

// maxPower bounds the exponents that are computed with: with a payload's worth of digits, none overflows an int, also of 32 bits.
const maxPower = 1 << 30

// appendDecimal appends a JSON number as an integer that does not end with 0, and the power of ten by which it is
// multiplied: -1.50 is -15e-1, and all zeros are 0.
func appendDecimal(b, number []byte) []byte {
	digits, power := number, 0
	for i, c := range number {
		if c|0x20 != 'e' {
			continue
		}
		var err error
		if power, err = strconv.Atoi(string(number[i+1:])); err != nil || power < -maxPower || power > maxPower {
			return append(b, number...) // so far beyond any use that its notation may count
		}
		digits = number[:i]
	}
	start := len(b)
	if digits[0] == '-' {
		b, digits = append(b, '-'), digits[1:]
	}
	first := len(b)
	for i, c := range digits {
		if c == '.' {
			power -= len(digits) - i - 1
		} else if c != '0' || len(b) > first {
			b = append(b, c)
		}
	}
	for ; len(b) > first && b[len(b)-1] == '0'; power++ {
		b = b[:len(b)-1]
	}
	if len(b) == first {
		return append(b[:start], '0')
	}
	if power == 0 {
		return b
	}
	return strconv.AppendInt(append(b, 'e'), int64(power), 10)
}

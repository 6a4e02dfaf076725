package apijson

import (
	"encoding/base64"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/pawlq/pawl/internal/contract"
)

// Writer appends JSON. A name or an item writes the preceding comma itself where one is needed: after anything but an opening
// bracket or a name.
type Writer struct{ B []byte }

func (w *Writer) comma() {
	if n := len(w.B); n > 0 && w.B[n-1] != '{' && w.B[n-1] != '[' && w.B[n-1] != ':' {
		w.B = append(w.B, ',')
	}
}

// Open begins an object or a list that is an item, or the whole value.
func (w *Writer) Open(bracket byte) {
	w.comma()
	w.B = append(w.B, bracket)
}

func (w *Writer) Close(bracket byte) { w.B = append(w.B, bracket) }

func (w *Writer) name(name string) {
	w.comma()
	w.B = append(w.B, '"')
	w.B = append(w.B, name...)
	w.B = append(w.B, '"', ':')
}

// Within begins an object or a list that is a field.
func (w *Writer) Within(name string, bracket byte) {
	w.name(name)
	w.B = append(w.B, bracket)
}

func (w *Writer) Str(name, s string) {
	w.name(name)
	w.B = appendQuoted(w.B, s)
}

// Opt omits an empty string.
func (w *Writer) Opt(name, s string) {
	if s != "" {
		w.Str(name, s)
	}
}

func (w *Writer) Num(name string, n int64) {
	w.name(name)
	w.B = strconv.AppendInt(w.B, n, 10)
}

func (w *Writer) number(f float64) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		f = 0 // not representable in JSON
	}
	w.B = strconv.AppendFloat(w.B, f, 'g', -1, 64)
}

func (w *Writer) Boolean(name string, v bool) {
	w.name(name)
	w.B = strconv.AppendBool(w.B, v)
}

// data writes a payload or result: verbatim if it is JSON, otherwise in base64. It omits an empty one.
func (w *Writer) data(name string, data []byte, contentType string) {
	switch {
	case len(data) == 0:
	case contract.IsJSON(contentType):
		w.name(name)
		w.B = append(w.B, data...)
	default:
		w.blob(name, data)
	}
}

// blob omits an empty value.
func (w *Writer) blob(name string, data []byte) {
	if len(data) == 0 {
		return
	}
	w.name(name)
	w.base64(data)
}

func (w *Writer) base64(data []byte) {
	w.B = append(base64.StdEncoding.AppendEncode(append(w.B, '"'), data), '"')
}

// appendQuoted appends a string. Invalid UTF-8 becomes the replacement character.
func appendQuoted(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s) // its only error is invalid UTF-8
	return b
}

package rest

import (
	"encoding/base64"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/pawlq/pawl/internal/contract"
)

// jsonWriter appends JSON. A name or an item writes the preceding comma itself where one is needed: after anything but an opening
// bracket or a name.
type jsonWriter struct{ b []byte }

func (w *jsonWriter) comma() {
	if n := len(w.b); n > 0 && w.b[n-1] != '{' && w.b[n-1] != '[' && w.b[n-1] != ':' {
		w.b = append(w.b, ',')
	}
}

// open begins an object or a list that is an item, or the whole value.
func (w *jsonWriter) open(bracket byte) {
	w.comma()
	w.b = append(w.b, bracket)
}

func (w *jsonWriter) close(bracket byte) { w.b = append(w.b, bracket) }

func (w *jsonWriter) name(name string) {
	w.comma()
	w.b = append(w.b, '"')
	w.b = append(w.b, name...)
	w.b = append(w.b, '"', ':')
}

// within begins an object or a list that is a field.
func (w *jsonWriter) within(name string, bracket byte) {
	w.name(name)
	w.b = append(w.b, bracket)
}

func (w *jsonWriter) str(name, s string) {
	w.name(name)
	w.b = appendQuoted(w.b, s)
}

// opt omits an empty string.
func (w *jsonWriter) opt(name, s string) {
	if s != "" {
		w.str(name, s)
	}
}

func (w *jsonWriter) num(name string, n int64) {
	w.name(name)
	w.b = strconv.AppendInt(w.b, n, 10)
}

func (w *jsonWriter) number(f float64) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		f = 0 // not representable in JSON
	}
	w.b = strconv.AppendFloat(w.b, f, 'g', -1, 64)
}

func (w *jsonWriter) boolean(name string, v bool) {
	w.name(name)
	w.b = strconv.AppendBool(w.b, v)
}

// data writes a payload or result: verbatim if it is JSON, otherwise in base64. It omits an empty one.
func (w *jsonWriter) data(name string, data []byte, contentType string) {
	switch {
	case len(data) == 0:
	case contract.IsJSON(contentType):
		w.name(name)
		w.b = append(w.b, data...)
	default:
		w.blob(name, data)
	}
}

// blob omits an empty value.
func (w *jsonWriter) blob(name string, data []byte) {
	if len(data) == 0 {
		return
	}
	w.name(name)
	w.base64(data)
}

func (w *jsonWriter) base64(data []byte) {
	w.b = append(base64.StdEncoding.AppendEncode(append(w.b, '"'), data), '"')
}

// appendQuoted appends a string. Invalid UTF-8 becomes the replacement character.
func appendQuoted(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s) // its only error is invalid UTF-8
	return b
}

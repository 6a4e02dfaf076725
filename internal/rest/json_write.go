package rest

import (
	"encoding/base64"
	"math"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pawlq/pawl/internal/contract"
)

// jsonWriter appends JSON. A name or an item puts the comma before itself where one is needed: behind anything but an
// opening bracket or a name.
type jsonWriter struct{ b []byte }

func (w *jsonWriter) comma() {
	if n := len(w.b); n > 0 && w.b[n-1] != '{' && w.b[n-1] != '[' && w.b[n-1] != ':' {
		w.b = append(w.b, ',')
	}
}

// open begins an object or a list that is an item, or the whole.
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

// opt leaves out an empty text.
func (w *jsonWriter) opt(name, s string) {
	if s != "" {
		w.str(name, s)
	}
}

func (w *jsonWriter) num(name string, n int64) {
	w.name(name)
	w.b = strconv.AppendInt(w.b, n, 10)
}

func (w *jsonWriter) float(name string, f float64) {
	w.name(name)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		f = 0 // JSON has no such number
	}
	w.b = strconv.AppendFloat(w.b, f, 'g', -1, 64)
}

func (w *jsonWriter) boolean(name string, v bool) {
	w.name(name)
	w.b = strconv.AppendBool(w.b, v)
}

// time leaves out a time that is not set.
func (w *jsonWriter) time(name string, t *timestamppb.Timestamp) {
	if t == nil {
		return
	}
	w.name(name)
	w.b = append(w.b, '"')
	w.b = t.AsTime().AppendFormat(w.b, time.RFC3339Nano)
	w.b = append(w.b, '"')
}

// span leaves out a duration that is not set.
func (w *jsonWriter) span(name string, d *durationpb.Duration) {
	if d == nil {
		return
	}
	w.name(name)
	w.b = append(w.b, '"')
	w.b = append(w.b, contract.SpanText(d.AsDuration())...)
	w.b = append(w.b, '"')
}

// data writes a payload or result: as it is if it is JSON, else in base64. None is left out.
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

// blob leaves out an empty one.
func (w *jsonWriter) blob(name string, data []byte) {
	if len(data) == 0 {
		return
	}
	w.name(name)
	w.b = append(w.b, '"')
	w.b = base64.StdEncoding.AppendEncode(w.b, data)
	w.b = append(w.b, '"')
}

func (w *jsonWriter) strs(name string, list []string) {
	if len(list) == 0 {
		return
	}
	w.within(name, '[')
	for _, s := range list {
		w.comma()
		w.b = appendQuoted(w.b, s)
	}
	w.close(']')
}

func (w *jsonWriter) texts(name string, m map[string]string) {
	if len(m) == 0 {
		return
	}
	w.within(name, '{')
	for k, v := range m {
		w.comma()
		w.b = appendQuoted(w.b, k)
		w.b = append(w.b, ':')
		w.b = appendQuoted(w.b, v)
	}
	w.close('}')
}

// appendQuoted appends a string. What is not UTF-8 becomes the replacement character.
func appendQuoted(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s) // tells only of what is not UTF-8
	return b
}

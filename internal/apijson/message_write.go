package apijson

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/humanize"
)

// Message writes a message as an object.
func (w *Writer) Message(p proto.Message) {
	v := p.ProtoReflect()
	w.object(Of(v.Descriptor()), v)
}

// List writes messages as a list.
func List[T proto.Message](w *Writer, name string, items []T) {
	w.Within(name, '[')
	for _, it := range items {
		w.Message(it)
	}
	w.Close(']')
}

// Fields writes the fields of a message into the open object.
func (w *Writer) Fields(p proto.Message) {
	v := p.ProtoReflect()
	w.fields(Of(v.Descriptor()), v)
}

func (w *Writer) object(m *Message, v protoreflect.Message) {
	w.Open('{')
	w.fields(m, v)
	w.Close('}')
}

func (w *Writer) fields(m *Message, v protoreflect.Message) {
	for _, f := range m.fields {
		if f.hidden || f.condition != nil && v.Has(f.condition) != (f.with != "") {
			continue
		}
		switch {
		case f.D.IsMap():
			w.mapped(f, v.Get(f.D).Map())
		case f.D.IsList():
			w.list(f, v.Get(f.D).List())
		case f.inline:
			if v.Has(f.D) {
				w.fields(f.inner, v.Get(f.D).Message())
			}
		default:
			w.single(f, v)
		}
	}
}

// single writes a field that has one value.
func (w *Writer) single(f *Field, v protoreflect.Message) {
	value := v.Get(f.D)
	if !w.shown(f, v, value) {
		return
	}
	switch {
	case f.typed != "":
		w.data(f.name, value.Bytes(), v.Get(f.contentType).String())
	case f.json && f.kind == blobs:
		w.data(f.name, value.Bytes(), "")
	case f.json:
		w.data(f.name, []byte(value.String()), "")
	case f.rate:
		w.Str(f.name, contract.RateText(value.Float()))
	default:
		w.name(f.name)
		w.value(f, value)
	}
}

// shown reports whether an answer includes a field.
func (w *Writer) shown(f *Field, v protoreflect.Message, value protoreflect.Value) bool {
	switch f.kind {
	case booleans, integers, unsigned, floats:
		switch {
		case f.above != 0:
			return value.Int() > f.above
		case f.nonzero || f.rate || f.D.HasPresence():
			return v.Has(f.D)
		}
		return true
	}
	return f.always || v.Has(f.D)
}

func (w *Writer) value(f *Field, value protoreflect.Value) {
	switch f.kind {
	case texts:
		w.B = appendQuoted(w.B, value.String())
	case blobs:
		w.base64(value.Bytes())
	case booleans:
		w.B = strconv.AppendBool(w.B, value.Bool())
	case integers:
		w.B = strconv.AppendInt(w.B, value.Int(), 10)
	case unsigned:
		w.B = strconv.AppendUint(w.B, value.Uint(), 10)
	case floats:
		w.number(value.Float())
	case enums:
		w.B = appendQuoted(w.B, f.word(value.Enum()))
	case spans:
		w.B = append(append(append(w.B, '"'), humanize.DurationText(spanOf(value.Message()))...), '"')
	case times:
		w.B = append(value.Message().Interface().(*timestamppb.Timestamp).AsTime().AppendFormat(append(w.B, '"'), time.RFC3339Nano), '"')
	case objects:
		w.B = append(w.B, '{')
		w.fields(f.inner, value.Message())
		w.B = append(w.B, '}')
	}
}

func (w *Writer) list(f *Field, list protoreflect.List) {
	if list.Len() == 0 && (f.nonzero || f.kind == texts || f.kind == enums) {
		return
	}
	if f.object {
		w.pairs(f, list)
		return
	}
	w.Within(f.name, '[')
	for i := range list.Len() {
		w.comma()
		if f.colon {
			pair := list.Get(i).Message()
			w.B = appendQuoted(w.B, pair.Get(f.inner.fields[0].D).String()+":"+pair.Get(f.inner.fields[1].D).String())
			continue
		}
		w.value(f, list.Get(i))
	}
	w.Close(']')
}

// pairs writes a list of pairs as an object: the first field of each is the name, the second the value.
func (w *Writer) pairs(f *Field, list protoreflect.List) {
	name, value := f.inner.fields[0], f.inner.fields[1]
	w.Within(f.name, '{')
	for i := range list.Len() {
		pair := list.Get(i).Message()
		w.comma()
		w.value(name, pair.Get(name.D))
		w.B = append(w.B, ':')
		w.value(value, pair.Get(value.D))
	}
	w.Close('}')
}

// mapped writes a map as an object, sorted by key.
func (w *Writer) mapped(f *Field, m protoreflect.Map) {
	if m.Len() == 0 {
		return
	}
	values := make(map[string]protoreflect.Value, m.Len())
	m.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		values[k.String()] = v
		return true
	})
	w.Within(f.name, '{')
	for _, key := range slices.Sorted(maps.Keys(values)) {
		w.comma()
		w.B = append(appendQuoted(w.B, key), ':')
		w.value(f, values[key])
	}
	w.Close('}')
}

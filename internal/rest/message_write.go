package rest

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pawlq/pawl/internal/contract"
)

// message writes a message as an object.
func (w *jsonWriter) message(p proto.Message) {
	v := p.ProtoReflect()
	w.object(messageOf(v.Descriptor()), v)
}

// fieldsOf writes the fields of a message into the open object.
func (w *jsonWriter) fieldsOf(p proto.Message) {
	v := p.ProtoReflect()
	w.fields(messageOf(v.Descriptor()), v)
}

func (w *jsonWriter) object(m *message, v protoreflect.Message) {
	w.open('{')
	w.fields(m, v)
	w.close('}')
}

func (w *jsonWriter) fields(m *message, v protoreflect.Message) {
	for _, f := range m.fields {
		if f.hidden || f.condition != nil && v.Has(f.condition) != (f.with != "") {
			continue
		}
		switch {
		case f.d.IsMap():
			w.mapped(f, v.Get(f.d).Map())
		case f.d.IsList():
			w.list(f, v.Get(f.d).List())
		case f.inline:
			if v.Has(f.d) {
				w.fields(f.inner, v.Get(f.d).Message())
			}
		default:
			w.single(f, v)
		}
	}
}

// single writes a field that has one value.
func (w *jsonWriter) single(f *field, v protoreflect.Message) {
	value := v.Get(f.d)
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
		w.str(f.name, contract.RateText(value.Float()))
	default:
		w.name(f.name)
		w.value(f, value)
	}
}

// shown reports whether an answer includes a field.
func (w *jsonWriter) shown(f *field, v protoreflect.Message, value protoreflect.Value) bool {
	switch f.kind {
	case booleans, integers, unsigned, floats:
		switch {
		case f.above != 0:
			return value.Int() > f.above
		case f.nonzero || f.rate || f.d.HasPresence():
			return v.Has(f.d)
		}
		return true
	}
	return f.always || v.Has(f.d)
}

func (w *jsonWriter) value(f *field, value protoreflect.Value) {
	switch f.kind {
	case texts:
		w.b = appendQuoted(w.b, value.String())
	case blobs:
		w.base64(value.Bytes())
	case booleans:
		w.b = strconv.AppendBool(w.b, value.Bool())
	case integers:
		w.b = strconv.AppendInt(w.b, value.Int(), 10)
	case unsigned:
		w.b = strconv.AppendUint(w.b, value.Uint(), 10)
	case floats:
		w.number(value.Float())
	case enums:
		w.b = appendQuoted(w.b, f.word(value.Enum()))
	case spans:
		w.b = append(append(append(w.b, '"'), contract.SpanText(spanOf(value.Message()))...), '"')
	case times:
		w.b = append(value.Message().Interface().(*timestamppb.Timestamp).AsTime().AppendFormat(append(w.b, '"'), time.RFC3339Nano), '"')
	case objects:
		w.b = append(w.b, '{')
		w.fields(f.inner, value.Message())
		w.b = append(w.b, '}')
	}
}

func (w *jsonWriter) list(f *field, list protoreflect.List) {
	if list.Len() == 0 && (f.nonzero || f.kind == texts || f.kind == enums) {
		return
	}
	if f.object {
		w.pairs(f, list)
		return
	}
	w.within(f.name, '[')
	for i := range list.Len() {
		w.comma()
		if f.colon {
			pair := list.Get(i).Message()
			w.b = appendQuoted(w.b, pair.Get(f.inner.fields[0].d).String()+":"+pair.Get(f.inner.fields[1].d).String())
			continue
		}
		w.value(f, list.Get(i))
	}
	w.close(']')
}

// pairs writes a list of pairs as an object: the first field of each is the name, the second the value.
func (w *jsonWriter) pairs(f *field, list protoreflect.List) {
	name, value := f.inner.fields[0], f.inner.fields[1]
	w.within(f.name, '{')
	for i := range list.Len() {
		pair := list.Get(i).Message()
		w.comma()
		w.value(name, pair.Get(name.d))
		w.b = append(w.b, ':')
		w.value(value, pair.Get(value.d))
	}
	w.close('}')
}

// mapped writes a map as an object, sorted by key.
func (w *jsonWriter) mapped(f *field, m protoreflect.Map) {
	if m.Len() == 0 {
		return
	}
	values := make(map[string]protoreflect.Value, m.Len())
	m.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		values[k.String()] = v
		return true
	})
	w.within(f.name, '{')
	for _, key := range slices.Sorted(maps.Keys(values)) {
		w.comma()
		w.b = append(appendQuoted(w.b, key), ':')
		w.value(f, values[key])
	}
	w.close('}')
}

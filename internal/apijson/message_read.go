package apijson

import (
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// Field reads the named field of a body into a message.
func (r *Reader) Field(to protoreflect.Message, name string) error {
	return r.field(Of(to.Descriptor()), to, "", name)
}

// Items reads a list whose items can be refused individually: into returns the message for the next one, and done is
// called when it has been read, or with what is wrong with it.
func (r *Reader) Items(path string, limit int, into func() proto.Message, done func(error)) error {
	return r.items(path, func(i int) error {
		if i == limit {
			return task.Invalid(path, "more than %d items", limit)
		}
		depth := r.json.StackDepth()
		item := into().ProtoReflect()
		err := r.object(Of(item.Descriptor()), item, "")
		if err != nil && r.malformed != nil {
			return err
		}
		if done(err); err != nil {
			return r.skip(depth, int64(i))
		}
		return nil
	})
}

// object reads an object into a message. Every refusal names the field by its path.
func (r *Reader) object(m *Message, to protoreflect.Message, path string) error {
	outer := r.typed
	r.typed = typedBytes{}
	err := r.fields(path, func(name string) error { return r.field(m, to, path, name) })
	if err == nil {
		err = r.typed.done(path)
	}
	r.typed = outer
	return err
}

// typedBytes holds a message's bytes until its content type, which may come later, is known. A request has at most one such field.
type typedBytes struct {
	of    *Field
	to    protoreflect.Message
	value []byte // as in the body
}

func (t *typedBytes) done(path string) error {
	if t.of == nil {
		return nil
	}
	b, err := Data(join(path, t.of.name), t.value, t.to.Get(t.of.contentType).String())
	if err == nil {
		t.to.Set(t.of.D, protoreflect.ValueOfBytes(b))
	}
	return err
}

// field reads the named field into a message, or into one whose fields are inlined in it.
func (r *Reader) field(m *Message, to protoreflect.Message, path, name string) error {
	f := m.byName[name]
	if f == nil {
		for _, in := range m.fields {
			if in.inline && !in.D.IsList() && in.inner.Has(name) {
				return r.field(in.inner, to.Mutable(in.D).Message(), path, name)
			}
		}
		return Unknown(path, name)
	}
	at := join(path, name)
	switch {
	case f.typed != "":
		value, err := r.any()
		r.typed = typedBytes{f, to, value}
		return err
	case f.shares:
		return r.shares(f, to, at)
	case f.D.IsMap():
		return r.mapped(f, to, at)
	case f.D.IsList():
		return r.list(f, to, at)
	case f.inner != nil:
		return r.object(f.inner, to.Mutable(f.D).Message(), at)
	}
	v, err := r.value(f, at)
	if err == nil {
		err = f.notEmpty(f.isText() && v.String() == "", at)
	}
	if err == nil {
		to.Set(f.D, v)
	}
	return err
}

// Has reports whether the object of a message may have a field with the name.
func (m *Message) Has(name string) bool {
	if m.byName[name] != nil {
		return true
	}
	return slices.ContainsFunc(m.fields, func(f *Field) bool { return f.inline && f.inner.Has(name) })
}

// isText reports whether a field is a string that may be left out.
func (f *Field) isText() bool { return f.kind == texts && f.D.HasPresence() }

// notEmpty refuses what is given but empty, such as an unset variable: a filter would select all, a token cover all queues.
func (f *Field) notEmpty(empty bool, path string) error {
	switch {
	case !empty || f.empty:
		return nil
	case f.full != "":
		return task.Invalid(path, "is empty; %s", f.full)
	}
	return contract.Empty(path)
}

// value reads one value that is not an object.
func (r *Reader) value(f *Field, path string) (v protoreflect.Value, err error) {
	switch {
	case f.json && f.kind == blobs:
		b, err := r.any()
		return protoreflect.ValueOfBytes(b), err
	case f.rate:
		n, err := r.rate(path)
		return protoreflect.ValueOfFloat64(n), err
	}
	switch f.kind {
	case booleans:
		var on bool
		err = r.boolean(&on, path)
		return protoreflect.ValueOfBool(on), err
	case integers, unsigned:
		low, high := f.bounds()
		n, err := r.integer(path, low, high)
		return f.number(n), err
	case floats:
		n, err := r.float(path)
		if err == nil && n == 0 && f.min > 0 {
			err = task.Invalid(path, "0 is not between %d and %d", f.min, f.max)
		}
		return protoreflect.ValueOfFloat64(n), err
	}
	s, err := r.str(path)
	if err != nil {
		return v, err
	}
	return f.fromText(path, s)
}

// bounds returns the bounds of an integer in a request.
func (f *Field) bounds() (low, high int64) {
	low, high = f.min, f.max
	if high == 0 {
		switch f.D.Kind() {
		case protoreflect.Int32Kind:
			high = math.MaxInt32
		case protoreflect.Uint32Kind:
			high = math.MaxUint32
		default:
			high = math.MaxInt64
		}
	}
	if f.negative {
		low = math.MinInt64
	}
	return low, high
}

// number converts an integer within the bounds of a field to the field's type.
func (f *Field) number(n int64) protoreflect.Value {
	switch f.D.Kind() {
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(n)) // #nosec G115 -- within bounds
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(n)) // #nosec G115 -- within bounds
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(n)) // #nosec G115 -- within bounds
	}
	return protoreflect.ValueOfInt64(n)
}

// fromText returns the value of a string in a body or in a query.
func (f *Field) fromText(path, s string) (v protoreflect.Value, err error) {
	switch f.kind {
	case texts:
		return protoreflect.ValueOfString(s), nil
	case blobs:
		b, err := blobText(path, s)
		return protoreflect.ValueOfBytes(b), err
	case spans:
		d, err := spanText(path, s)
		return protoreflect.ValueOfMessage(d.ProtoReflect()), err
	case times:
		t, err := timeText(path, s)
		return protoreflect.ValueOfMessage(t.ProtoReflect()), err
	case enums:
		if n := slices.Index(f.words, s); n > 0 {
			return protoreflect.ValueOfEnum(protoreflect.EnumNumber(n)), nil // #nosec G115 -- a few
		}
		if f.D.Enum().Name() == "State" {
			return v, task.Invalid(path, "%q is not a state", task.Cut(s, 64))
		}
		return v, task.NoneOf(path, s, f.words[1:])
	}
	panic("no text is read for " + string(f.D.FullName()))
}

// list reads a list, or a single item where that may replace it.
func (r *Reader) list(f *Field, to protoreflect.Message, path string) error {
	list := to.Mutable(f.D).List()
	add := func(i int) error {
		if f.colon {
			s, err := r.str(path)
			if err == nil {
				err = f.addPair(list, path, s)
			}
			return err
		}
		if f.inner != nil {
			return r.object(f.inner, list.AppendMutable().Message(), contract.Item(path, i))
		}
		v, err := r.value(f, path)
		if err == nil {
			list.Append(v)
		}
		return err
	}
	if f.any && r.json.PeekKind() != '[' {
		return add(0)
	}
	limit := f.items
	if limit == 0 {
		limit = r.maxItems
	}
	err := r.items(path, func(i int) error {
		if i == limit {
			return task.Invalid(path, "more than %d items", limit)
		}
		return add(i)
	})
	if err == nil {
		err = f.notEmpty(list.Len() == 0, path)
	}
	return err
}

// addPair adds a pair written as "path:value". The first colon not preceded by a \ ends the path.
func (f *Field) addPair(list protoreflect.List, path, s string) error {
	end := 0
	for end < len(s) && s[end] != ':' {
		if s[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(s) {
		return task.Invalid(path, "%q is not a path and a value such as customer.id:42", task.Cut(s, 64))
	}
	pair := list.AppendMutable().Message()
	pair.Set(f.inner.fields[0].D, protoreflect.ValueOfString(s[:end]))
	pair.Set(f.inner.fields[1].D, protoreflect.ValueOfString(s[end+1:]))
	return nil
}

// maxEntries bounds the entries of a map. A lower limit is checked along with the map's other rules.
const maxEntries = 1000

// mapped reads an object whose names are the keys of a map.
func (r *Reader) mapped(f *Field, to protoreflect.Message, path string) error {
	m := to.Mutable(f.D).Map()
	return r.upTo(maxEntries, path, func(name string) error {
		at := join(path, name)
		key := protoreflect.ValueOfString(name).MapKey()
		if f.inner != nil {
			return r.object(f.inner, m.Mutable(key).Message(), at)
		}
		s, err := r.str(at)
		m.Set(key, protoreflect.ValueOfString(s))
		return err
	})
}

// shares reads queues: a list of names, or an object of names and weights, which it sorts by name.
func (r *Reader) shares(f *Field, to protoreflect.Message, path string) error {
	list := to.Mutable(f.D).List()
	add := func(queue string, weight int64) {
		m := list.AppendMutable().Message()
		m.Set(f.inner.byName["queue"].D, protoreflect.ValueOfString(queue))
		m.Set(f.inner.byName["weight"].D, protoreflect.ValueOfInt32(int32(weight))) // #nosec G115 -- within bounds
	}
	if r.json.PeekKind() != '{' {
		names, err := r.strs(path, task.MaxClaimQueues)
		if err == nil {
			err = f.notEmpty(len(names) == 0, path)
		}
		for _, name := range names {
			add(name, 0)
		}
		return err
	}
	weights := map[string]int64{}
	err := r.fields(path, func(name string) (err error) {
		weights[name], err = r.integer(join(path, name), 1, task.MaxWeight)
		return err
	})
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		add(name, weights[name])
	}
	return err
}

package apijson

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pawlq/pawl/internal/task"
)

// A request without a body has the fields of its message in its path and its query.

// Name returns a field's name in JSON.
func (f *Field) Name() string { return f.name }

// Needed returns the hint if the field is required in a request; "": it is not.
func (f *Field) Needed() string { return f.needed }

// Field returns a message's field with a name in JSON; nil: there is none.
func (m *Message) Field(name string) *Field { return m.byName[name] }

// Each calls do with each field of a message and of those inlined in it, and with the message that has the field.
func (m *Message) Each(of protoreflect.Message, do func(in protoreflect.Message, f *Field) error) error {
	for _, f := range m.fields {
		var err error
		if f.inline && !f.D.IsList() {
			err = f.inner.Each(of.Mutable(f.D).Message(), do)
		} else {
			err = do(of, f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// PathField returns the field that a path parameter stands for: the one of that name, with or without _id, or for {id} the first
// field. Nil: a special route reads the parameter.
func (m *Message) PathField(name string) *Field {
	for _, f := range m.fields {
		if f.name == name || f.name == name+"_id" {
			return f
		}
		if f.inline && f.inner.byName[name] != nil {
			return f
		}
	}
	if name == "id" {
		return m.fields[0]
	}
	return nil
}

// InPath reports whether the field with a name is the one that the path parameter in determines.
func (f *Field) InPath(in, name string) bool {
	return f.inline && in == name || !f.inline && f.name == name
}

// FromPath reads a path parameter.
func (f *Field) FromPath(to protoreflect.Message, name, text string) error {
	switch {
	case f.inline:
		in := to.Mutable(f.D).Message()
		in.Set(f.inner.byName[name].D, protoreflect.ValueOfString(text))
	case f.kind == unsigned:
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return task.Invalid(name, "%q is not the number of a %s", task.Cut(text, 64), name)
		}
		to.Set(f.D, protoreflect.ValueOfUint32(uint32(n)))
	default:
		to.Set(f.D, protoreflect.ValueOfString(text))
	}
	return nil
}

// Repeats reports whether a query may repeat a parameter.
func (m *Message) Repeats(name string) bool {
	return slices.ContainsFunc(m.fields, func(f *Field) bool {
		return f.inline && f.inner.Repeats(name) || f.name == name && f.D.IsList()
	})
}

// Parameters returns the names that a query may have, except for those that but reports.
func (m *Message) Parameters(but func(name string) bool) (names []string) {
	for _, f := range m.fields {
		switch {
		case f.inline:
			names = append(names, f.inner.Parameters(but)...)
		case !f.hidden && !but(f.name):
			names = append(names, f.name)
		}
	}
	return names
}

// FromQuery reads the parameters of a query.
func (m *Message) FromQuery(to protoreflect.Message, q url.Values) error {
	for _, f := range m.fields {
		var err error
		switch {
		case f.inline:
			err = f.inner.FromQuery(to.Mutable(f.D).Message(), q)
		case !f.hidden && q.Has(f.name):
			err = f.fromParameter(to, q[f.name])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fromParameter reads a parameter. One that is a list may be repeated, and may have several items separated by commas.
func (f *Field) fromParameter(to protoreflect.Message, values []string) error {
	if f.colon {
		for _, s := range values {
			if err := f.addPair(to.Mutable(f.D).List(), f.name, s); err != nil {
				return err
			}
		}
		return nil
	}
	if f.D.IsList() {
		list := to.Mutable(f.D).List()
		for s := range strings.SplitSeq(strings.Join(values, ","), ",") {
			v, err := f.fromText(f.name, s)
			if err == nil {
				err = f.notEmpty(s == "", f.name)
			}
			if err != nil {
				return err
			}
			list.Append(v)
		}
		return nil
	}
	v, err := f.fromWord(values[0])
	if err == nil {
		err = f.notEmpty(f.isText() && values[0] == "", f.name)
	}
	if err == nil && v.IsValid() {
		to.Set(f.D, v)
	}
	return err
}

func (f *Field) fromWord(s string) (v protoreflect.Value, err error) {
	switch f.kind {
	case booleans:
		on, err := flagText(f.name, s)
		return protoreflect.ValueOfBool(on), err
	case integers, unsigned:
		low, high := f.bounds()
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < low || n > high {
			return v, task.Invalid(f.name, "%q is not between %d and %d", task.Cut(s, 64), low, high)
		}
		return f.number(n), nil
	}
	return f.fromText(f.name, s)
}

// flagText parses a boolean parameter.
func flagText(name, s string) (bool, error) {
	switch s {
	case "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, task.Invalid(name, "%q is neither true nor false", task.Cut(s, 64))
}

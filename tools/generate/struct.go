package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// goStruct is a goType with its messages and fields.
type goStruct struct {
	*goType
	messages []protoreflect.MessageDescriptor
	fields   []goField
}

// goField is a field of a struct.
type goField struct {
	name, typ string
	doc       string
	field     protoreflect.FieldDescriptor // nil: it is more than the message has
	within    string                       // the getter of the part that has it: "GetSpec()."
	convert   string                       // a function written by hand; the whole expression for what is more than the message has
	embedded  bool
	promoted  bool // it is a field of an embedded struct
	byHand    bool
}

// parse reads the rules of a type.
func (t *goType) parse() *goStruct {
	s := &goStruct{goType: t}
	for name := range strings.FieldsSeq(t.messages) {
		s.messages = append(s.messages, find(name).(protoreflect.MessageDescriptor))
	}
	rules := map[string]string{}
	for rule := range strings.FieldsSeq(t.rules) {
		name := strings.TrimLeft(rule, "-^")
		if end := strings.IndexAny(name, "=:!-"); end >= 0 {
			name = name[:end]
		}
		rules[name] = rule
	}
	s.add(s.messages[0], "", "", rules)
	if len(rules) > 0 {
		panic(fmt.Sprintf("%s: message %s lacks the fields of the rules %v", t.name, t.messages, rules))
	}
	for _, m := range t.more {
		decl, doc, _ := strings.Cut(m.field, " // ")
		name, typ, named := strings.Cut(decl, " ")
		s.fields = append(s.fields, goField{name: name, typ: cmp.Or(typ, name), doc: doc, convert: m.from, embedded: !named})
	}
	return s
}

// add adds the fields of a message, and takes their rules away.
func (s *goStruct) add(m protoreflect.MessageDescriptor, path, within string, rules map[string]string) {
	for i := range m.Fields().Len() {
		f := goField{field: m.Fields().Get(i), within: within}
		name := path + string(f.field.Name())
		rule := rules[name]
		delete(rules, name)
		if strings.HasPrefix(rule, "-") {
			continue
		}
		f.promoted, f.byHand = strings.HasPrefix(rule, "^"), strings.HasSuffix(rule, "-")
		rule = strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(rule, "^"), name), "-")
		rule, f.convert, _ = strings.Cut(rule, "!")
		rename, typ, _ := strings.Cut(rule, ":")
		if typ == "~" {
			s.add(f.field.Message(), name+".", within+"Get"+camel(f.field)+"().", rules)
			continue
		}
		f.name = cmp.Or(strings.TrimPrefix(rename, "="), goName(strings.TrimSuffix(string(f.field.Name()), seconds(f.field))))
		f.embedded = typ == "+"
		f.typ = s.typeOf(f.field, typ)
		s.fields = append(s.fields, f)
	}
}

// seconds returns the end of the name of a field that has a number of seconds, or "".
func seconds(f protoreflect.FieldDescriptor) string {
	if f.Kind() == protoreflect.DoubleKind && strings.HasSuffix(string(f.Name()), "_seconds") {
		return "_seconds"
	}
	return ""
}

// typeOf returns the type of a field in Go. The rule names it, or is "*" for a pointer to the usual one.
func (s *goStruct) typeOf(f protoreflect.FieldDescriptor, rule string) string {
	if strings.Trim(rule, "*+") != "" {
		return rule
	}
	if f.IsMap() {
		return "map[string]" + s.typeName(f.MapValue())
	}
	typ := s.typeName(f)
	switch {
	case f.IsList() && !strings.HasPrefix(typ, "[]"):
		return "[]" + typ
	case rule == "*", s.use == encode && f.HasOptionalKeyword() && f.Kind() != protoreflect.StringKind:
		return "*" + typ
	}
	return typ
}

var scalars = map[protoreflect.Kind]string{
	protoreflect.BoolKind: "bool", protoreflect.StringKind: "string", protoreflect.BytesKind: "[]byte", protoreflect.DoubleKind: "float64",
	protoreflect.Int32Kind: "int", protoreflect.Int64Kind: "int64", protoreflect.Uint32Kind: "uint32", protoreflect.Uint64Kind: "uint64",
}

// typeName returns the name of the type of one element of a field.
func (s *goStruct) typeName(f protoreflect.FieldDescriptor) string {
	name := typeIn(f)
	switch {
	case seconds(f) != "":
		return "time.Duration"
	case name == "":
		return scalars[f.Kind()]
	case sdkTypes[name].name != "":
		return sdkTypes[name].name
	case f.Enum() != nil:
		return name
	}
	for _, t := range goTypes {
		if slices.Contains(strings.Fields(t.messages), name) && t.use&s.use != 0 {
			return t.name
		}
	}
	panic(fmt.Sprintf("%s: no type for message %s of field %s", s.name, name, f.FullName()))
}

// typeIn returns the name of the message or enum of a field: Reason.Rate. For a scalar it is "".
func typeIn(f protoreflect.FieldDescriptor) string {
	switch {
	case f.Message() != nil:
		return nameOf(f.Message())
	case f.Enum() != nil:
		return string(f.Enum().Name())
	}
	return ""
}

// width is the maximum of a line with a comment at its end.
const width = 138

// declarations returns the fields. A comment that does not fit beside its field is above it.
func (s *goStruct) declarations(docs comments) string {
	names, types := 0, 0
	for _, f := range s.fields {
		if !f.promoted && !f.embedded {
			names, types = max(names, len(f.name)), max(types, len(f.typ))
		}
	}
	var b strings.Builder
	for _, f := range s.fields {
		if f.field != nil {
			f.doc = cmp.Or(goDocs[s.name+"."+f.name], docs.field(f, s))
		}
		decl := f.name + " " + f.typ
		if f.embedded {
			decl = f.typ
		}
		switch {
		case f.promoted:
		case f.doc == "":
			fmt.Fprintf(&b, "\t%s\n", decl)
		case 4+names+1+types+len(" // ")+len(f.doc) <= width:
			fmt.Fprintf(&b, "\t%s // %s\n", decl, f.doc)
		default:
			fmt.Fprintf(&b, "%s\t%s\n", lines(f.doc), decl)
		}
	}
	return b.String()
}

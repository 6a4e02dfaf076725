package main

import (
	"bytes"
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// reader writes the function that converts a message, which may be nil, to the type.
func (s *goStruct) reader(b *bytes.Buffer) {
	param, direct := "(p *"+goMessage(s.messages[0])+")", false
	if len(s.messages) > 1 {
		param = "[P interface {\n"
		for _, f := range s.fields {
			param += fmt.Sprintf("\tGet%s() %s\n", camel(f.field), messageType(f.field))
		}
		param += "}](p P)"
	}
	var values strings.Builder
	for _, f := range s.fields {
		name := f.name
		if f.embedded {
			name = f.typ
		}
		switch {
		case f.promoted || f.field == nil && f.convert == "":
		case f.field == nil:
			fmt.Fprintf(&values, "\t\t%s: %s,\n", name, f.convert)
		default:
			fmt.Fprintf(&values, "\t\t%s: %s,\n", name, f.read())
			direct = direct || f.maybe()
		}
	}
	fmt.Fprintf(b, "\nfunc %sOf%s %s {\n", lower(s.name), param, s.name)
	if direct {
		fmt.Fprintf(b, "\tif p == nil {\n\t\treturn %s{}\n\t}\n", s.name)
	}
	fmt.Fprintf(b, "\treturn %s{\n%s\t}\n}\n", s.name, values.String())
}

// maybe reports whether a field is a pointer to a scalar both in the message and in Go.
func (f goField) maybe() bool {
	return f.typ[0] == '*' && f.field.HasOptionalKeyword() && f.field.Message() == nil
}

// read returns the expression for a field of a message p.
func (f goField) read() string {
	got := "p." + f.within + "Get" + camel(f.field) + "()"
	element, typ := f.field, strings.TrimPrefix(f.typ, "*")
	switch {
	case f.field.IsMap():
		element, typ = f.field.MapValue(), strings.TrimPrefix(typ, "map[string]")
	case f.field.IsList():
		typ = strings.TrimPrefix(typ, "[]")
	}
	of := reads(element, typ)
	switch {
	case f.convert != "":
		return f.convert + "(" + got + ")"
	case f.maybe() && strings.Contains(of, "."):
		return fmt.Sprintf("maybe(p.%s, %s)", camel(f.field), of)
	case f.maybe():
		return fmt.Sprintf("maybe(p.%s, func(v %s) %s { return %s(v) })", camel(f.field), messageType(f.field), typ, typ)
	case of == "":
		return got
	case of == asDuration && f.typ == "time.Duration":
		return got + ".AsDuration()"
	case sdkTypes[typeIn(element)].name == f.typ:
		return of + "(" + got + ")"
	case f.field.IsMap():
		return "mapped(" + got + ", " + of + ")"
	case f.field.IsList() && f.field.Kind() == protoreflect.StringKind:
		return "words[" + typ + "](" + got + ")"
	case f.field.IsList():
		return "each(" + got + ", " + of + ")"
	case f.typ[0] == '*':
		return "present(" + got + ", " + of + ")"
	case strings.HasSuffix(of, "Words"):
		return of + "[int32(" + got + ")]"
	}
	return of + "(" + got + ")"
}

const asDuration = "(*durationpb.Duration).AsDuration"

// reads returns the function that converts an element of a message to a type, or "" if it has that type.
func reads(f protoreflect.FieldDescriptor, typ string) string {
	switch name := typeIn(f); {
	case seconds(f) != "":
		return "convert.Seconds"
	case name == "" && elementType(f) == typ:
		return ""
	case name == "":
		return typ
	case sdkTypes[name].name != "":
		return sdkTypes[name].from
	case f.Enum() != nil:
		return lower(name) + "Words"
	}
	return lower(typ) + "Of"
}

// messageType returns the type of a field in its message.
func messageType(f protoreflect.FieldDescriptor) string {
	if f.IsList() {
		return "[]" + elementType(f)
	}
	return elementType(f)
}

func elementType(f protoreflect.FieldDescriptor) string {
	switch {
	case f.Message() != nil:
		return "*" + goMessage(f.Message())
	case f.Kind() == protoreflect.Int32Kind:
		return "int32"
	}
	return scalars[f.Kind()]
}

// goMessage names a message in Go.
func goMessage(m protoreflect.MessageDescriptor) string {
	name := nameOf(m)
	switch name {
	case "google.protobuf.Duration":
		return "durationpb.Duration"
	case "google.protobuf.Timestamp":
		return "timestamppb.Timestamp"
	}
	return "pawlv1." + strings.ReplaceAll(name, ".", "_")
}

// writer writes the method that converts the type to a message.
func (s *goStruct) writer(b *bytes.Buffer) {
	m := goMessage(s.messages[0])
	fmt.Fprintf(b, "\nfunc (v %s) message() *%s {\n\treturn &%s{\n", s.name, m, m)
	for _, f := range s.fields {
		if f.field != nil && !f.byHand {
			fmt.Fprintf(b, "\t\t%s: %s,\n", camel(f.field), f.written())
		}
	}
	b.WriteString("\t}\n}\n")
}

// written returns the expression for the field of a message, made of the field of a struct v.
func (f goField) written() string {
	v, name := "v."+f.name, typeIn(f.field)
	of := strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(f.typ, "*"), "[]"), "map[string]") + ".message"
	plain := f.typ == "string" || f.typ == "[]string"
	switch {
	case f.convert != "":
		return f.convert + "(" + v + ")"
	case f.field.Enum() != nil:
		panic(fmt.Sprintf("%s: the words of an enum are converted by hand", f.field.FullName()))
	case f.field.IsMap():
		return "mapped(" + v + ", " + of + ")"
	case name == "google.protobuf.Timestamp":
		return "convert.Timestamp(" + v + ")"
	case name == "google.protobuf.Duration" && f.typ[0] == '*':
		return "sent(" + v + ", durationpb.New)"
	case name == "google.protobuf.Duration":
		return "convert.Duration(" + v + ")"
	case sdkTypes[name].name != "":
		return sdkTypes[name].from + "Proto(" + v + ")"
	case name != "" && f.field.IsList():
		return "each(" + v + ", " + of + ")"
	case name != "" && f.typ[0] == '*':
		return "sent(" + v + ", " + of + ")"
	case name != "":
		return "given(" + v + ", " + of + ")"
	case f.field.IsList() && f.field.Kind() == protoreflect.StringKind && !plain:
		return "words[string](" + v + ")"
	case f.field.Kind() == protoreflect.StringKind && !f.field.IsList():
		if !plain {
			v = "string(" + v + ")"
		}
		if f.field.HasOptionalKeyword() {
			v = "convert.Text(" + v + ")"
		}
	case f.field.Kind() == protoreflect.Int32Kind:
		return "convert.Int32(" + v + ")"
	}
	return v
}

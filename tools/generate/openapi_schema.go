package main

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pawlq/pawl/internal/apijson"
	"github.com/pawlq/pawl/internal/rest"
)

// field describes a field of a message; nil: REST does not have it.
func (d *document) field(f *apijson.Field, request bool) object {
	in := f.D.Parent()
	s := f.Schema(request)
	for _, fact := range factsOf(nameOf(in)+"."+string(f.D.Name()), f.D.Kind(), request) {
		if fact == nil {
			return nil
		}
		add(s, fact)
	}
	if doc := d.ofField(f, s); doc != "" && s["description"] == nil {
		s["description"] = doc
	}
	return s
}

// valuesOf returns the words that a text, or those of a list, may be.
func valuesOf(s object) []string {
	if items, ok := s["items"].(object); ok {
		return valuesOf(items)
	}
	if ref, ok := s["$ref"].(string); ok {
		if enum, ok := described(strings.TrimPrefix(ref, "#/components/schemas/")).(protoreflect.EnumDescriptor); ok {
			return words(enum)
		}
	}
	return strings.Fields(strings.Trim(fmt.Sprint(s["enum"]), "[]"))
}

// message adds the schema of a message, without the fields that but reports.
func (d *document) message(name string, m protoreflect.MessageDescriptor, but func(name string) bool) object {
	request := d.inRequest[m.FullName()]
	properties, needed := object{}, map[string]bool{}
	for _, f := range apijson.Of(m).All() {
		in := f.D.ContainingMessage()
		s := d.field(f, d.inRequest[in.FullName()])
		if s == nil || but(f.Name()) {
			continue
		}
		if header := rest.Headers[f.Name()]; header != "" && request {
			s["description"] = strings.TrimSpace(fmt.Sprint(s["description"], " Also as the header ", header, "."))
		}
		properties[f.Name()] = s
		must, known := required[nameOf(m)]
		if !known || !request {
			must += " " + required[nameOf(in)]
		}
		if slices.Contains(strings.Fields(must), f.Name()) || f.Needed() != "" || !request && f.Always() {
			needed[f.Name()] = true
		}
	}
	s := object{"type": "object", "additionalProperties": false, "description": d.about(m)}
	if len(properties) > 0 {
		s["properties"] = properties
	}
	if len(needed) > 0 {
		s["required"] = slices.Sorted(maps.Keys(needed))
	}
	for _, fact := range factsOf(nameOf(m), protoreflect.MessageKind, request) {
		add(s, fact)
	}
	if other := d.schemas[name]; other != nil && !reflect.DeepEqual(other, s) {
		panic("two requests with different fields in their paths have the schema " + name)
	}
	d.schemas[name] = s
	return s
}

// complete adds the schemas that others refer to.
func (d *document) complete(v any) {
	switch v := v.(type) {
	case object:
		for name, value := range v {
			if ref, ok := value.(string); ok && name == "$ref" {
				d.refer(strings.TrimPrefix(ref, "#/components/schemas/"))
			}
			d.complete(value)
		}
	case []any:
		for _, item := range v {
			d.complete(item)
		}
	}
}

func (d *document) refer(name string) {
	if d.schemas[name] != nil || strings.Contains(name, "/") {
		return
	}
	switch of := described(name).(type) {
	case protoreflect.EnumDescriptor:
		doc := d.about(of)
		values := of.Values()
		for i := range values.Len() {
			what := "`" + word(values.Get(i)) + "`"
			if i == 0 {
				what = "absent"
			}
			if text := d.docs[nameOf(of)+"_"+string(values.Get(i).Name())]; text != "" {
				doc += "\n- " + what + ": " + d.inREST(text)
			}
		}
		d.schemas[name] = object{"type": "string", "enum": words(of), "description": doc}
	case protoreflect.MessageDescriptor:
		d.complete(d.message(name, of, func(string) bool { return false }))
	default:
		panic("there is no schema " + name)
	}
}

// described returns the message or the enum with the name of a schema. AckItem is an AckRequest in a batch, which is
// not for the task in a path.
func described(name string) protoreflect.Descriptor {
	if item, ok := strings.CutSuffix(name, "Item"); ok {
		name = item + "Request"
	}
	if d := lookUp(name); d != nil {
		return d
	}
	for i := range name {
		if d := lookUp(name[:i] + "." + name[i:]); d != nil {
			return d
		}
	}
	return nil
}

// about returns the comment of a message or an enum, without its name and verb.
func (d *document) about(of protoreflect.Descriptor) string {
	doc := strings.TrimPrefix(d.docs[strings.ReplaceAll(nameOf(of), ".", "_")], string(of.Name())+" ")
	return d.sentence(verb.ReplaceAllString(doc, ""))
}

var (
	verb = regexp.MustCompile(`^(is|are|has|holds|says that|says|describes) `)
	// notSet finds the words for a field that is not set, if what that means follows.
	notSet = regexp.MustCompile(`\b(empty|none):|"":`)
	quoted = regexp.MustCompile(`"" (if|while)`)
	demand = regexp.MustCompile(`^(?i:required)(;|:|$) *`) // of the schema's list
	zeroed = regexp.MustCompile(`\b0s?:`)
	// literal finds what has no capital at the beginning of a sentence.
	literal = regexp.MustCompile(`^([a-z]+[_.*]|true:|false:)`)
)

// ofField returns the comment of a field with a schema. In JSON, what is not set is absent, and so is a zero that the
// schema does not allow.
func (d *document) ofField(f *apijson.Field, s object) string {
	doc := d.docs[strings.ReplaceAll(nameOf(f.D.Parent()), ".", "_")+"."+camel(f.D)]
	if !f.Always() {
		doc = quoted.ReplaceAllString(notSet.ReplaceAllString(doc, "absent:"), "absent $1")
		if least, bounded := s["minimum"]; !d.inRequest[f.D.ContainingMessage().FullName()] || bounded && fmt.Sprint(least) != "0" {
			doc = zeroed.ReplaceAllString(doc, "absent:")
		}
	}
	doc = demand.ReplaceAllString(doc, "")
	plain := valuesOf(s)
	for _, sibling := range apijson.Of(f.D.ContainingMessage()).All() {
		plain = append(plain, sibling.Name())
	}
	return d.sentence(unset.ReplaceAllString(doc, "absent"), plain...)
}

// sentence returns a comment as a sentence, with the words of REST. If it begins with one of words, it has no capital.
func (d *document) sentence(doc string, words ...string) string {
	if doc == "" {
		return ""
	}
	doc = d.inREST(doc)
	first, _, _ := strings.Cut(doc, " ")
	if !literal.MatchString(doc) && !slices.Contains(words, strings.TrimRight(first, ",:;")) {
		doc = strings.ToUpper(doc[:1]) + doc[1:]
	}
	if strings.ContainsAny(doc[len(doc)-1:], ":,;") {
		panic("a comment that does not end: " + doc)
	}
	return strings.TrimSuffix(doc, ".") + "."
}

// inREST returns a comment with the words of REST for the values of enums and for calls.
func (d *document) inREST(doc string) string {
	return term.ReplaceAllStringFunc(doc, func(name string) string {
		if v, ok := lookUp(name).(protoreflect.EnumValueDescriptor); ok {
			return word(v)
		}
		if d.rpcs[name] && strings.ToLower(name[1:]) != name[1:] {
			return lowerFirst(name)
		}
		return name
	})
}

package rest

import (
	"strings"
	"sync"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// message is how JSON has a message of the API.
type message struct {
	name   string   // without its package
	fields []*field // in the order of the proto file
	byName map[string]*field
}

// field is how JSON has a field of a message.
type field struct {
	form
	d     protoreflect.FieldDescriptor
	kind  kind // of one value
	words []string
	// inner is the message of the values of a field, or of a map; nil: they are none.
	inner *message
	// contentType is that of typed bytes; condition is the field of with or unless.
	contentType, condition protoreflect.FieldDescriptor
}

// kind is how one value stands in JSON.
type kind uint8

const (
	texts kind = iota
	blobs
	booleans
	integers
	unsigned
	floats
	enums
	spans
	times
	objects
)

// messages are those of the API that were asked for, by their descriptors. One is made when it is first needed.
var messages struct {
	mu  sync.RWMutex
	all map[protoreflect.FullName]*message
}

// messageOf is how JSON has a message.
func messageOf(d protoreflect.MessageDescriptor) *message {
	messages.mu.RLock()
	m := messages.all[d.FullName()]
	messages.mu.RUnlock()
	if m != nil {
		return m
	}
	messages.mu.Lock()
	defer messages.mu.Unlock()
	if messages.all == nil {
		messages.all = map[protoreflect.FullName]*message{}
	}
	return makeMessage(d)
}

// makeMessage makes a message with those within it; some hold others of their kind.
func makeMessage(d protoreflect.MessageDescriptor) *message {
	if m := messages.all[d.FullName()]; m != nil {
		return m
	}
	m := &message{name: strings.TrimPrefix(string(d.FullName()), "pawl.v1."), byName: map[string]*field{}}
	messages.all[d.FullName()] = m
	for i := range d.Fields().Len() {
		f := makeField(m, d.Fields().Get(i))
		m.fields = append(m.fields, f)
		if !f.hidden && !f.inline {
			m.byName[f.name] = f
		}
	}
	return m
}

func makeField(in *message, d protoreflect.FieldDescriptor) *field {
	f := &field{d: d}
	var ok bool
	if f.form, ok = forms[in.name+"."+string(d.Name())]; !ok {
		f.form = forms[string(d.Name())]
	}
	if f.name == "" {
		f.name = string(d.Name())
	}
	value := d
	if d.IsMap() {
		value = d.MapValue()
	}
	f.kind = kindOf(value)
	if f.kind == enums {
		f.words = wordsOf(value.Enum())
	}
	if f.kind == objects {
		f.inner = makeMessage(value.Message())
	}
	siblings := d.ContainingMessage().Fields()
	if f.typed != "" {
		f.contentType = named(siblings, f.typed)
	}
	if f.with+f.unless != "" {
		f.condition = named(siblings, f.with+f.unless)
	}
	return f
}

func named(fields protoreflect.FieldDescriptors, name string) protoreflect.FieldDescriptor {
	d := fields.ByName(protoreflect.Name(name))
	if d == nil {
		panic("forms name the field " + name + ", which there is not")
	}
	return d
}

func kindOf(d protoreflect.FieldDescriptor) kind {
	switch d.Kind() {
	case protoreflect.StringKind:
		return texts
	case protoreflect.BytesKind:
		return blobs
	case protoreflect.BoolKind:
		return booleans
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		return integers
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		return unsigned
	case protoreflect.DoubleKind:
		return floats
	case protoreflect.EnumKind:
		return enums
	case protoreflect.MessageKind:
		switch d.Message().FullName() {
		case "google.protobuf.Duration":
			return spans
		case "google.protobuf.Timestamp":
			return times
		}
		return objects
	}
	panic("JSON has no form for " + string(d.FullName()))
}

// wordsOf are the words of an enum by their numbers: CAUGHT_UP of TickOutcome is "caught_up". The first stands for none.
func wordsOf(d protoreflect.EnumDescriptor) []string {
	values := d.Values()
	prefix := strings.TrimSuffix(string(values.ByNumber(0).Name()), "UNSPECIFIED")
	words := make([]string, values.Len())
	for i := range values.Len() {
		words[values.Get(i).Number()] = strings.ToLower(strings.TrimPrefix(string(values.Get(i).Name()), prefix))
	}
	words[0] = ""
	return words
}

// word is that of a number; "": there is none.
func (f *field) word(n protoreflect.EnumNumber) string {
	if n < 0 || int(n) >= len(f.words) {
		return ""
	}
	return f.words[n]
}

package apijson

import (
	"strings"
	"sync"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Message describes how JSON represents a message of the API.
type Message struct {
	name   string   // without its package
	fields []*Field // in the order of the proto file
	byName map[string]*Field
}

// Field describes how JSON represents a field of a message.
type Field struct {
	form
	D     protoreflect.FieldDescriptor
	kind  kind // of one value
	words []string
	// inner is the message type of a field's values, or of a map's; nil: they are not messages.
	inner *Message
	// contentType is the content type field of typed bytes; condition is the field that with or unless names.
	contentType, condition protoreflect.FieldDescriptor
}

// kind is how one value is represented in JSON.
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

// messages caches the message types used so far, by descriptor. Each is built when first needed.
var messages struct {
	mu  sync.RWMutex
	all map[protoreflect.FullName]*Message
}

// Of returns how JSON represents messages of a type.
func Of(d protoreflect.MessageDescriptor) *Message {
	messages.mu.RLock()
	m := messages.all[d.FullName()]
	messages.mu.RUnlock()
	if m != nil {
		return m
	}
	messages.mu.Lock()
	defer messages.mu.Unlock()
	if messages.all == nil {
		messages.all = map[protoreflect.FullName]*Message{}
	}
	return makeMessage(d)
}

// makeMessage builds a message and those within it; some are recursive.
func makeMessage(d protoreflect.MessageDescriptor) *Message {
	if m := messages.all[d.FullName()]; m != nil {
		return m
	}
	m := &Message{name: strings.TrimPrefix(string(d.FullName()), "pawl.v1."), byName: map[string]*Field{}}
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

func makeField(in *Message, d protoreflect.FieldDescriptor) *Field {
	f := &Field{D: d}
	var ok bool
	if f.form, ok = forms[in.name+"."+string(d.Name())]; !ok {
		f.form = forms[string(d.Name())]
	}
	if f.name == "" {
		f.name = string(d.Name())
	}
	value := f.value()
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

// value returns the descriptor of one value.
func (f *Field) value() protoreflect.FieldDescriptor {
	if f.D.IsMap() {
		return f.D.MapValue()
	}
	return f.D
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

// wordsOf returns the words of an enum, indexed by value: CAUGHT_UP of TickOutcome is "caught_up". The first stands for none.
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

// word returns the word for a value; "": there is none.
func (f *Field) word(n protoreflect.EnumNumber) string {
	if n < 0 || int(n) >= len(f.words) {
		return ""
	}
	return f.words[n]
}

package receive

import (
	"reflect"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pawlq/pawl/internal/task"
)

// maxNesting bounds the nesting of messages. The deepest useful one is a chain of tasks, with 20.
const maxNesting = 100

// Approximate memory of the parts of a message once decoded, besides their bytes.
const (
	textCost  = 32  // a string or bytes: its header, and what the allocation rounds up
	entryCost = 128 // an entry of a map
)

// shape is what weigh must know of a message type.
type shape struct {
	size   int // of its struct
	fields map[protowire.Number]shapeField
}

type shapeField struct {
	message *shape // the message type of its values, or the entry of its map; nil: no messages
	packed  bool   // numbers may be packed
}

var shapes sync.Map // full name → *shape

// shapeOf returns the shape of a message's type.
func shapeOf(m protoreflect.Message) *shape {
	name := m.Descriptor().FullName()
	if s, ok := shapes.Load(name); ok {
		return s.(*shape)
	}
	known := map[protoreflect.FullName]*shape{}
	s := newShape(m, known)
	shapes.Store(name, s)
	return s
}

// newShape builds the shape of a message type. Known are those being built: messages may be recursive.
func newShape(m protoreflect.Message, known map[protoreflect.FullName]*shape) *shape {
	d := m.Descriptor()
	if s := known[d.FullName()]; s != nil {
		return s
	}
	s := &shape{size: int(reflect.TypeOf(m.Interface()).Elem().Size()), fields: map[protowire.Number]shapeField{}}
	known[d.FullName()] = s
	for i := range d.Fields().Len() {
		field := d.Fields().Get(i)
		s.fields[field.Number()] = shapeField{message: shapeIn(m, field, known), packed: field.IsPacked()}
	}
	return s
}

// shapeIn returns the shape of a field's values; nil: they are not messages.
func shapeIn(m protoreflect.Message, field protoreflect.FieldDescriptor, known map[protoreflect.FullName]*shape) *shape {
	switch {
	case field.IsMap():
		entry := &shape{size: entryCost}
		if field.MapValue().Message() != nil {
			value := m.NewField(field).Map().NewValue().Message()
			entry.fields = map[protowire.Number]shapeField{field.MapValue().Number(): {message: newShape(value, known)}}
		}
		return entry
	case field.Message() == nil:
		return nil
	case field.IsList():
		return newShape(m.NewField(field).List().NewElement().Message(), known)
	}
	return newShape(m.NewField(field).Message(), known)
}

// weigh estimates how many bytes of memory the contents of a message take once decoded, besides the message's struct. It parses the
// message without allocating: two bytes of it may become an object of hundreds.
func (s *shape) weigh(raw []byte, depth int) (sum int, err error) {
	if depth > maxNesting {
		return 0, task.Invalid("message", "is nested deeper than %d", maxNesting)
	}
	for len(raw) > 0 {
		number, kind, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return 0, task.Invalid("message", "%v", protowire.ParseError(n))
		}
		whole := n
		if n = protowire.ConsumeFieldValue(number, kind, raw[n:]); n < 0 {
			return 0, task.Invalid("message", "%v", protowire.ParseError(n))
		}
		inner, err := s.weighField(s.fields[number], kind, raw[whole:whole+n], depth)
		if err != nil {
			return 0, err
		}
		sum += inner
		raw = raw[whole+n:]
	}
	return sum, nil
}

func (s *shape) weighField(f shapeField, kind protowire.Type, value []byte, depth int) (int, error) {
	if kind != protowire.BytesType {
		return 2*len(value) + 16, nil // of a list, or unknown
	}
	value, _ = protowire.ConsumeBytes(value)
	switch {
	case f.message != nil:
		inner, err := f.message.weigh(value, depth+1)
		return textCost + f.message.size + inner, err
	case f.packed:
		return 16 * len(value), nil // a one-byte number takes 8, and lists grow
	}
	return textCost + len(value), nil
}

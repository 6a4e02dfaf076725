package apijson

import (
	"math"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pawlq/pawl/internal/task"
)

// Schema is a JSON Schema.
type Schema = map[string]any

// Ref returns a schema that is another one, by its name in the OpenAPI document.
func Ref(name string) Schema { return Schema{"$ref": "#/components/schemas/" + name} }

// SchemaName returns the name of the schema of a message or an enum.
func SchemaName(d protoreflect.Descriptor) string {
	return strings.ReplaceAll(strings.TrimPrefix(string(d.FullName()), "pawl.v1."), ".", "")
}

// All returns the fields of a message's object: those of the messages inlined in it are among them.
func (m *Message) All() (all []*Field) {
	for _, f := range m.fields {
		switch {
		case f.inline:
			all = append(all, f.inner.All()...)
		case !f.hidden:
			all = append(all, f)
		}
	}
	return all
}

// Inner returns the type of the messages that a field holds; nil: it holds none, or shows none of them as an object.
func (f *Field) Inner() protoreflect.MessageDescriptor {
	switch {
	case f.inner == nil || f.shares || f.object || f.colon:
		return nil
	}
	return f.value().Message()
}

// Always reports whether an answer always has the field.
func (f *Field) Always() bool {
	switch {
	case f.condition != nil || f.D.IsMap():
		return false
	case f.D.IsList():
		return !f.nonzero && f.kind != texts && f.kind != enums
	}
	switch f.kind {
	case booleans, integers, unsigned, floats:
		return f.above == 0 && !f.nonzero && !f.rate && !f.D.HasPresence()
	}
	return f.always
}

// Schema describes the values of a field: those that a request may have, or those of answers.
func (f *Field) Schema(request bool) Schema {
	list := func(items Schema) Schema {
		s := Schema{"type": "array", "items": items}
		if request {
			s["maxItems"] = MaxListed
			if f.items > 0 {
				s["maxItems"] = f.items
			}
			if !f.empty || f.needed != "" {
				s["minItems"] = 1
			}
		}
		return s
	}
	switch {
	case f.shares:
		names := Schema{"type": "array", "items": Ref("QueueName"), "minItems": 1, "maxItems": task.MaxClaimQueues}
		weights := Schema{"type": "object", "additionalProperties": integer(1, task.MaxWeight), "minProperties": 1,
			"maxProperties": task.MaxClaimQueues}
		return Schema{"oneOf": []any{names, weights}}
	case f.object:
		return Schema{"type": "object", "additionalProperties": f.inner.fields[1].one(false)}
	case f.D.IsMap():
		s := Schema{"type": "object", "additionalProperties": f.one(request)}
		if request {
			s["maxProperties"] = maxEntries
		}
		return s
	case f.colon:
		return list(Schema{"type": "string", "minLength": 2})
	case f.any:
		return Schema{"oneOf": []any{f.one(request), list(f.one(request))}}
	case f.D.IsList():
		return list(f.one(request))
	}
	return f.one(request)
}

// one describes one value.
func (f *Field) one(request bool) Schema {
	switch {
	case f.typed != "" || f.json:
		return Ref("Data")
	case f.rate:
		return Schema{"type": "string", "pattern": "^[0-9.]+(e[0-9]+)?/[smh]$"}
	case f.inner != nil:
		return Ref(SchemaName(f.value().Message()))
	}
	switch f.kind {
	case booleans:
		return Schema{"type": "boolean"}
	case integers, unsigned:
		switch {
		case request:
			return integer(f.bounds())
		case f.nonzero:
			return integer(1, math.MaxInt64)
		case f.above > 0:
			return integer(f.above+1, math.MaxInt64)
		}
		return integer(0, math.MaxInt64)
	case floats:
		if f.max > 0 && request {
			return Schema{"type": "number", "minimum": f.min, "maximum": f.max}
		}
		return Schema{"type": "number"}
	case enums:
		return Ref(SchemaName(f.value().Enum()))
	case spans:
		return Ref("Duration")
	case times:
		return Ref("Time")
	case blobs:
		return Schema{"type": "string", "contentEncoding": "base64"}
	}
	if request && f.isText() && !f.D.IsList() && !f.empty {
		return Schema{"type": "string", "minLength": 1}
	}
	return Schema{"type": "string"}
}

// integer describes an integer. The bounds of 64 bits go without saying.
func integer(low, high int64) Schema {
	s := Schema{"type": "integer"}
	if low > math.MinInt64 {
		s["minimum"] = low
	}
	if high < math.MaxInt64 {
		s["maximum"] = high
	}
	return s
}

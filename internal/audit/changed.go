package audit

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

const (
	// maxSide bounds the JSON of either side of a change, and maxText a text in it. Both are bytes.
	maxSide = 1 << 10
	maxText = 128
)

// Changed compares two versions of a value, and returns the differences as JSON objects by dotted names, or nil if there are none.
// Each side is a struct, a pointer to one, or nil if it doesn't exist. Names are those of the fields' json tags; zero fields are
// omitted. Whatever exceeds maxSide is omitted, and counted as "more".
func Changed(before, after any) (was, is []byte) {
	b, a := leaves(before), leaves(after)
	maps.DeleteFunc(b, func(name string, value any) bool {
		if same, ok := a[name]; ok && same == value {
			delete(a, name)
			return true
		}
		return false
	})
	return sideOf(b), sideOf(a)
}

// sideOf encodes an object; nil if it is empty.
func sideOf(values map[string]any) []byte {
	if len(values) == 0 {
		return nil
	}
	out := []byte{'{'}
	names := slices.Sorted(maps.Keys(values))
	for i, name := range names {
		field := fieldOf(name, values[name])
		if len(out)+len(field) > maxSide {
			out = append(out, fieldOf("more", len(names)-i)...)
			break
		}
		out = append(out, field...)
	}
	out[len(out)-1] = '}'
	return out
}

// fieldOf encodes a field, followed by a comma.
func fieldOf(name string, value any) []byte {
	n, err := json.Marshal(task.Cut(name, maxText))
	if err != nil {
		panic(err) // texts can always be encoded
	}
	v, err := json.Marshal(value)
	if err != nil {
		v = []byte(`"?"`) // NaN or an infinity
	}
	return append(append(append(n, ':'), v...), ',')
}

// leaves returns the values in a struct by dotted names, in comparable forms: texts, numbers and booleans.
func leaves(v any) map[string]any {
	out := map[string]any{}
	if v != nil {
		gather(out, "", reflect.ValueOf(v))
	}
	return out
}

func gather(out map[string]any, name string, v reflect.Value) {
	if !v.IsValid() || v.IsZero() {
		return
	}
	if text, ok := textOf(v.Interface()); ok {
		out[name] = task.Cut(text, maxText)
		return
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		gather(out, name, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case f.Anonymous && tag == "":
				gather(out, name, v.Field(i))
			case f.IsExported() && tag != "-":
				gather(out, join(name, tag), v.Field(i))
			}
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			gather(out, join(name, fmt.Sprint(k)), v.MapIndex(k))
		}
	case reflect.Slice, reflect.Array:
		texts := make([]string, v.Len())
		for i := range texts {
			texts[i] = fmt.Sprint(v.Index(i))
		}
		out[name] = task.Cut(strings.Join(texts, ", "), maxText)
	default:
		out[name] = v.Interface()
	}
}

// textOf returns the text for types that are shown as such.
func textOf(v any) (string, bool) {
	switch v := v.(type) {
	case time.Duration:
		return v.String(), true
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano), true
	case *time.Time: // its String method has Go's own format
		return v.UTC().Format(time.RFC3339Nano), true
	case store.Time:
		return v.Time().UTC().Format(time.RFC3339Nano), true
	case fmt.Stringer:
		return v.String(), true
	}
	return "", false
}

func join(name, field string) string {
	if name == "" {
		return field
	}
	return name + "." + field
}

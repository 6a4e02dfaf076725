package admin_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// printer formats values in Go notation, without zero fields. It prints a value that takes several lines only once, and
// then refers to the call where it did. A nil printer prints everything.
type printer map[string]string

func (p printer) text(v reflect.Value, of string) string {
	switch x := v.Interface().(type) {
	case nil:
		return "nil"
	case *timestamppb.Timestamp:
		return p.text(reflect.ValueOf(x.AsTime()), of)
	case *durationpb.Duration:
		return x.AsDuration().String()
	case time.Time:
		return x.Format(time.DateTime)
	case []byte:
		return strconv.Quote(string(x))
	case json.RawMessage:
		return strconv.Quote(string(x))
	}
	var parts []string
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return "nil"
		}
		return p.text(v.Elem(), of)
	case reflect.String:
		return strconv.Quote(v.String())
	case reflect.Slice:
		for _, e := range v.Seq2() {
			parts = append(parts, p.text(e, of))
		}
		return lay("[", parts, "]")
	case reflect.Map:
		for key, e := range v.Seq2() {
			parts = append(parts, p.text(key, of)+": "+p.text(e, of))
		}
		slices.Sort(parts)
		return lay("{", parts, "}")
	case reflect.Struct:
		return p.fields(v, of)
	case reflect.Func:
		if v.IsNil() {
			return "nil"
		}
		return "func"
	}
	return fmt.Sprint(v)
}

func (p printer) fields(v reflect.Value, of string) string {
	if p != nil {
		if whole := printer(nil).fields(v, of); strings.Contains(whole, "\n") {
			if before, seen := p[whole]; seen {
				return "{as of " + before + "}"
			}
			p[whole] = of
		}
	}
	var parts []string
	for field, at := range v.Fields() {
		if field.IsExported() && !at.IsZero() {
			parts = append(parts, field.Name+": "+p.text(at, of))
		}
	}
	return lay("{", parts, "}")
}

// width is the maximum line length.
const width = 140

// lay puts parts on one line if they fit, otherwise on a line each.
func lay(before string, parts []string, after string) string {
	line := before + strings.Join(parts, ", ") + after
	if len(line) <= width && !strings.Contains(line, "\n") {
		return line
	}
	return before + "\n" + indent(strings.Join(parts, "\n")) + "\n" + after
}

func indent(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }

package admin_test

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
)

// fullness is how much of a value fill sets.
type fullness int

const (
	full   fullness = iota // every field
	brief                  // strings only
	hollow                 // every part exists, but is empty
)

// words has valid values for types with a fixed set of values.
var words = map[reflect.Type]any{
	reflect.TypeFor[admin.Action]():           admin.ActionSetPriority,
	reflect.TypeFor[admin.KeyOrder]():         admin.KeyOrderStrict,
	reflect.TypeFor[admin.Missed]():           admin.MissedAll,
	reflect.TypeFor[admin.Overlap]():          admin.OverlapSkip,
	reflect.TypeFor[admin.QueueTrait]():       admin.QueueNoWorker,
	reflect.TypeFor[admin.TypeOrder]():        admin.TypesFailing,
	reflect.TypeFor[pawltype.Priority]():      pawltype.High,
	reflect.TypeFor[pawltype.State]():         pawltype.StateDead,
	reflect.TypeFor[any]():                    "any",
	reflect.TypeFor[pawl.Args]():              pawl.RawTask{Type: "Type", Payload: []byte("Payload")},
	reflect.TypeFor[[]pawl.Option]():          []pawl.Option{pawl.Queue("Queue")},
	reflect.TypeFor[func(*admin.Operation)](): func(*admin.Operation) {},
}

// filler sets the fields of values so that each shows where it comes from: a string is the name of its field, a number
// its position among the fields. A list has two elements. The second is brief, and so is a value nested in another of
// its type.
type filler struct {
	how    fullness
	suffix string // of strings
	within []reflect.Type
}

// fill sets the value that to points to.
func fill(to any, how fullness) { filler{how: how}.fill(reflect.ValueOf(to).Elem(), "", 0) }

func (f filler) fill(v reflect.Value, name string, place int) {
	if word, known := words[v.Type()]; known && f.how == full {
		v.Set(reflect.ValueOf(word))
		return
	}
	moment, span := time.Date(2026, 1, 1, place, 0, 0, 0, time.UTC), time.Duration(place)*time.Second
	switch v.Interface().(type) {
	case time.Time:
		f.set(v, moment, time.Time{})
	case time.Duration:
		f.set(v, span, time.Duration(0))
	case *timestamppb.Timestamp:
		f.set(v, timestamppb.New(moment), &timestamppb.Timestamp{})
	case *durationpb.Duration:
		f.set(v, durationpb.New(span), &durationpb.Duration{})
	case []byte:
		if f.how != hollow {
			v.SetBytes([]byte(name + f.suffix))
		}
	case protoreflect.Enum:
		if values := v.Interface().(protoreflect.Enum).Descriptor().Values(); f.how == full {
			v.SetInt(int64(values.Get(values.Len() - 1).Number()))
		}
	default:
		f.fillKind(v, name, place)
	}
}

// set sets a value that contains no strings.
func (f filler) set(v reflect.Value, ofFull, ofHollow any) {
	switch f.how {
	case full:
		v.Set(reflect.ValueOf(ofFull))
	case hollow:
		v.Set(reflect.ValueOf(ofHollow))
	}
}

func (f filler) fillKind(v reflect.Value, name string, place int) {
	switch v.Kind() {
	case reflect.String:
		if f.how != hollow {
			v.SetString(name + f.suffix)
		}
	case reflect.Bool:
		v.SetBool(f.how == full)
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64, reflect.Float64:
		if f.how == full {
			v.Set(reflect.ValueOf(place).Convert(v.Type()))
		}
	case reflect.Pointer:
		if f.how != brief || v.Type().Elem().Kind() == reflect.String {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem(), name, place)
		}
	case reflect.Slice:
		for i := range f.elements() {
			v.Set(reflect.Append(v, f.element(v.Type().Elem(), name, place, i)))
		}
	case reflect.Map:
		for i := range f.elements() {
			if v.IsNil() {
				v.Set(reflect.MakeMap(v.Type()))
			}
			v.SetMapIndex(f.element(v.Type().Key(), name, place, i), f.element(v.Type().Elem(), name, place, i))
		}
	case reflect.Struct:
		if slices.Contains(f.within, v.Type()) {
			if f.how == hollow {
				return
			}
			f.how = brief
		}
		f.within = append(slices.Clone(f.within), v.Type())
		place = 0
		for field, of := range v.Fields() {
			if field.IsExported() {
				place++
				f.fill(of, field.Name, place)
			}
		}
	}
}

// elements returns how many elements lists have.
func (f filler) elements() int { return [...]int{full: 2, hollow: 1, brief: 0}[f.how] }

// element returns an element of a list.
func (f filler) element(typ reflect.Type, name string, place, i int) reflect.Value {
	v := reflect.New(typ).Elem()
	if i > 0 {
		f.suffix = " 2"
	}
	to := v
	if i > 0 && typ.Kind() == reflect.Pointer {
		v.Set(reflect.New(typ.Elem()))
		to = v.Elem()
	}
	if i > 0 && to.Kind() == reflect.Struct {
		f.how = brief
	}
	f.fill(to, name, place+i)
	return v
}

// part is a field of a message, or of one of its parts.
type part struct {
	path  string
	value reflect.Value
}

// parts returns all parts of a value that are not zero, each before the parts within it. For a list, these are the
// parts of its first element.
func parts(v reflect.Value, path string) (all []part) {
	if v.IsZero() {
		return nil
	}
	if path != "" {
		all = append(all, part{path, v})
	}
	switch v.Kind() {
	case reflect.Slice:
		v = v.Index(0)
	case reflect.Map:
		v = v.MapIndex(slices.MinFunc(v.MapKeys(), func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) }))
	}
	if v = reflect.Indirect(v); v.Kind() != reflect.Struct {
		return all
	}
	for field, at := range v.Fields() {
		if field.IsExported() {
			all = append(all, parts(at, strings.TrimPrefix(path+"."+field.Name, "."))...)
		}
	}
	return all
}

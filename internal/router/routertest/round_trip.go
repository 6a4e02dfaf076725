package routertest

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// filler sets every field of a value or, if bare, makes every pointer point to a zero value.
type filler struct {
	t    *testing.T
	rand *rand.Rand
	bare bool
}

var (
	timeType  = reflect.TypeFor[time.Time]()
	errorType = reflect.TypeFor[error]()
)

func (f *filler) fill(v reflect.Value, path string) {
	switch {
	case v.Type() == timeType:
		v.Set(reflect.ValueOf(time.UnixMicro(f.rand.Int64N(1 << 52)).UTC()))
		return
	case v.Type() == errorType:
		if !f.bare {
			e := &task.Error{}
			f.fill(reflect.ValueOf(e).Elem(), path)
			v.Set(reflect.ValueOf(e))
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if field.Name == "_" { // it controls the encoding and holds no data
				continue
			}
			if !field.IsExported() {
				f.t.Errorf("%s.%s is not exported, so it would be lost on the way to another node", path, field.Name)
				continue
			}
			f.fill(v.Field(i), path+"."+field.Name)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), path)
	case reflect.Slice:
		if f.bare || strings.Count(path, ".Then") > 2 { // tasks nested three deep are enough
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			f.fill(v.Index(i), path)
		}
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i), path)
		}
	case reflect.Map:
		if f.bare {
			return
		}
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(key, path)
			f.fill(value, path)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		v.SetString(fmt.Sprintf("%d \x00 ü \xff", f.rand.Int()))
	case reflect.Bool:
		v.SetBool(!f.bare)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(f.rand.Int64() >> (64 - min(v.Type().Bits(), 63)))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1 + f.rand.Uint64()>>(64-v.Type().Bits())>>1)
	case reflect.Float64:
		v.SetFloat(f.rand.NormFloat64())
	default:
		f.t.Errorf("%s is a %s, which the test can't fill", path, v.Kind())
	}
}

// RoundTrip is a value that is sent, the function that sends it, and the value that arrives.
type RoundTrip struct {
	sent, kept, got any // pointers to values of one type
	send            func() error
}

// RoundTrips sends values over the wire and compares what arrives.
func RoundTrips(t *testing.T, name string, make func() RoundTrip) {
	for _, bare := range []bool{false, true} {
		if bare && strings.HasSuffix(name, "answer") {
			continue // an answer that is an empty list may arrive as nil
		}
		seeds := uint64(20)
		if testing.Short() {
			seeds = 2
		}
		for seed := range seeds {
			w := make()
			for _, to := range []any{w.sent, w.kept} {
				f := &filler{t: t, rand: rand.New(rand.NewPCG(seed, 1)), bare: bare}
				f.fill(reflect.ValueOf(to).Elem(), name)
			}
			if err := w.send(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if bare {
				compareBare(t, name, reflect.ValueOf(w.kept).Elem(), reflect.ValueOf(w.got).Elem())
				continue
			}
			forgetBeside(reflect.ValueOf(w.kept))
			forgetBeside(reflect.ValueOf(w.got))
			if !reflect.DeepEqual(w.kept, w.got) {
				t.Fatalf("%s: sent %+v\ngot %+v", name, w.kept, w.got)
			}
		}
	}
}

// Plain is the journey of a value without a call.
func Plain[T any]() RoundTrip {
	var sent, kept, got T
	return RoundTrip{&sent, &kept, &got, func() error {
		b, err := verb.Encode(&sent)
		if err != nil {
			return err
		}
		return verb.Decode(b, &got)
	}}
}

// request is the journey of a call's request.
func request(make func() verb.Call) func() RoundTrip {
	return func() RoundTrip {
		sent, kept, got := make(), make(), make()
		return RoundTrip{sent.Request(), kept.Request(), got.Request(), func() error {
			b, err := sent.EncodeRequest()
			if err != nil {
				return err
			}
			return got.DecodeRequest(b)
		}}
	}
}

// answer is the journey of a call's answer, without an error.
func answer(make func() verb.Call) func() RoundTrip {
	return func() RoundTrip {
		sent, kept, got := make(), make(), make()
		return RoundTrip{sent.Answer(), kept.Answer(), got.Answer(), func() error {
			b, err := sent.EncodeReply(nil)
			if err != nil {
				return err
			}
			raw, err := got.DecodeReply(b)
			if err != nil {
				return err
			}
			if f, err := forward.ReadFault(raw); f != nil || err != nil {
				return fmt.Errorf("no error was decoded as %v, %v", f, err)
			}
			return nil
		}}
	}
}

// VerbsRoundTrip sends the requests and the answers of all verbs that a node serves.
func VerbsRoundTrip(t *testing.T, parts *verb.Parts) {
	for _, name := range parts.Names() {
		make := func() verb.Call { return parts.Named(name) }
		RoundTrips(t, name+" request", request(make))
		RoundTrips(t, name+" answer", answer(make))
	}
}

// forgetBeside clears the fields of a response that only the transport uses.
func forgetBeside(v reflect.Value) {
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return
	}
	for _, name := range []string{"Faults", "Timeouts"} {
		if f := v.Elem().FieldByName(name); f.IsValid() {
			f.SetZero()
		}
	}
}

// compareBare checks that a pointer to an empty value does not arrive as nil, nor a nil list as an empty one.
func compareBare(t *testing.T, path string, want, got reflect.Value) {
	switch want.Kind() {
	case reflect.Struct:
		if want.Type() == timeType {
			return
		}
		for i := range want.NumField() {
			if name := want.Type().Field(i).Name; name != "Faults" && name != "Timeouts" {
				compareBare(t, path+"."+name, want.Field(i), got.Field(i))
			}
		}
	case reflect.Pointer:
		if got.IsNil() {
			t.Errorf("%s: a pointer to an empty value arrived as nil", path)
		} else if want.Elem().Kind() == reflect.Slice && want.Elem().Len() == 0 && got.Elem().Len() == 0 {
			return // the pointer says that there is a value, which is empty
		} else {
			compareBare(t, path, want.Elem(), got.Elem())
		}
	case reflect.Slice, reflect.Map:
		if got.Len() != want.Len() || got.IsNil() != want.IsNil() {
			t.Errorf("%s: sent %#v, received %#v", path, want, got)
		}
	}
}

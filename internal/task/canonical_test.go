package task

import (
	"bytes"
	"encoding/json"
	"math/big"
	"reflect"
	"strings"
	"testing"
)

// exact returns a decoded value whose numbers are fractions, and false if one of them is too large for this.
func exact(v any) (any, bool) {
	ok := true
	switch v := v.(type) {
	case json.Number:
		if len(v) > 20 {
			return nil, false
		}
		r, ok := new(big.Rat).SetString(v.String())
		if !ok || len(r.String()) > 100 {
			return nil, false
		}
		return r.String(), true
	case []any:
		for i := range v {
			var one bool
			v[i], one = exact(v[i])
			ok = ok && one
		}
	case map[string]any:
		for k := range v {
			var one bool
			v[k], one = exact(v[k])
			ok = ok && one
		}
	case string:
		return "text " + v, true
	}
	return v, ok
}

// FuzzContent checks that the content of a payload has its value and no more: another notation of the value has the same content.
func FuzzContent(f *testing.F) {
	for _, text := range []string{
		``, `null`, ` [ true , false , null ] `, `{}`, `[]`, `{"b":1,"a":{"d":"x","c":[]}}`, `{"a":1,"a":2}`, `{"":0}`, `-0`, `1.50`,
		`-1e-2`, `100`, `0.10e+1`, `9007199254740993`, `1e99999999999999999999`, `1e1099511627777`, `0e5`,
		`"\u003c\/\n\"\\\ud83d\ude00\ud800\udc"`, `"\ud800\ud83d\ude00"`, `"\ud83d\u0041"`,
		`{"i":1,"h":2,"g":3,"f":4,"e":5,"d":6,"c":7,"b":8,"a":9}`, `{"\u0062":1,"a":2}`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1]`, `[1`, `[1}`,
		`"`, `"\`, `"\u00"`, `-`, `1 2`, `{1:2}`, `{,}`, `[,]`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		given := Spec{Payload: text}
		got := given.AppendContent(nil)[2:]
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		var value, again any
		if !json.Valid(text) || d.Decode(&value) != nil {
			return // it does not matter, as long as nothing panics
		}
		if twice := (&Spec{Payload: got}).AppendContent(nil)[2:]; !bytes.Equal(twice, got) {
			t.Errorf("%q is %q, which is %q", text, got, twice)
		}
		d = json.NewDecoder(bytes.NewReader(got))
		d.UseNumber()
		if err := d.Decode(&again); err != nil {
			t.Fatalf("%q is %q: %v", text, got, err)
		}
		indented, err := json.MarshalIndent(value, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		if other := (&Spec{Payload: indented}).AppendContent(nil)[2:]; !bytes.Equal(other, got) &&
			!bytes.Contains(bytes.ToLower(text), []byte(`\ud`)) && bytes.Count(text, []byte(":")) == bytes.Count(indented, []byte(":")) &&
			bytes.Equal(bytes.ToValidUTF8(text, nil), text) { // no half of a pair, no name twice
			t.Errorf("%q is %q, but %q is %q", text, got, indented, other)
		}
		want, ok1 := exact(value)
		have, ok2 := exact(again)
		if ok1 && ok2 && !reflect.DeepEqual(want, have) {
			t.Errorf("%q is %q: it has another value", text, got)
		}
	})
}

// TestContentOfHugeExponents checks that no overflow makes one content of two numbers.
func TestContentOfHugeExponents(t *testing.T) {
	seen := map[string]string{}
	for _, text := range []string{`1.5e-9223372036854775808`, `15e9223372036854775807`, `1.5e-2147483648`, `15e2147483647`,
		`10e9223372036854775807`, `1e-9223372036854775808`, `1e1073741825`, `1e-1073741825`, `1e-1073741824`, `1e1099511627777`,
		`1e-1099511627777`, `1e999999999999999999999999`, `1e-999999999999999999999999`, `0e999999999999999999999999`} {
		content := string((&Spec{Payload: []byte(text)}).AppendContent(nil))
		if other, taken := seen[content]; taken {
			t.Errorf("%s and %s are both %q", other, text, content)
		}
		seen[content] = text
	}
}

// TestContentIsBounded checks what hostile JSON costs: nesting neither overflows the stack nor copies a payload once per level.
func TestContentIsBounded(t *testing.T) {
	nested := func(depth int, head, inner, tail string) string {
		return strings.Repeat(head, depth) + inner + strings.Repeat(tail, depth)
	}
	for _, c := range []struct {
		text  string
		sorts bool
	}{
		{nested(maxDepth, `{"b":`, `[]`, `,"a":1}`), false},
		{nested(maxDepth-1, `{"b":`, `[]`, `,"a":1}`), true},
		{nested(maxDepth, "[", `{"b":1,"a":2}`, "]"), false},
		{nested(maxDepth-1, "[", `[],{"b":1,"a":2}`, "]"), true},
		{nested(1000, `{"b":`, `"`+strings.Repeat("x", 1<<20)+`"`, `,"a":1}`), false},
		{strings.Repeat("[", 16<<20), false},
		{strings.Repeat(`{"":`, 4<<20), false},
	} {
		content := (&Spec{Payload: []byte(c.text)}).AppendContent(nil)[2:]
		if got := string(content) != c.text; got != c.sorts {
			t.Errorf("%.20s, %d bytes: it is sorted: %t", c.text, len(c.text), got)
		}
	}
	s := Spec{Payload: []byte(nested(maxDepth-1, `{"b":`, `"`+strings.Repeat("x", 1<<16)+`"`, `,"a":1}`))}
	if n := testing.AllocsPerRun(10, func() { s.AppendContent(nil) }); n > maxDepth/2 {
		t.Errorf("a payload whose members must be sorted at %d levels takes %v buffers", maxDepth-1, n)
	}
}

func BenchmarkContent(b *testing.B) {
	s := Spec{Payload: []byte(`{"order":"0192f1c4-7e1a-7c3e-9d0e-2f4b6a8c0d1e","amount":12.5,"currency":"EUR",` +
		`"items":[{"sku":"A-1","n":2},{"sku":"B-7","n":1}],"note":"Größe <b>M</b>, & more","at":"2026-11-30T10:00:00Z","user":12345}`)}
	b.SetBytes(int64(len(s.Payload)))
	var buf []byte
	for b.Loop() {
		buf = s.AppendContent(buf[:0])
	}
}

package query

import (
	"errors"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/task"
)

func TestPayloadField(t *testing.T) {
	const payload = `{"id": 42, "to": "a@example.com", "gone": null, "vip": true, "price": -1.50e2, "big": 12345678901234567891, "long": "say \"hi\" \u00fc",
		"customer": {"id": "c-7", "a.b": {"x:y": 1}, "": 3, "42": "key"}, "items": [{"sku": "s0"}, {"sku": "s1", "n": [0.0, 7]}], "id2": [42], "id": 43}`
	for _, c := range []struct {
		path, value string
		want        bool
	}{
		{"id", "42", true}, {"id", "42.0", true}, {"id", "4.2e1", true}, {"id", "420e-1", true}, {"id", "43", false}, {"id", "042", false},
		{"id", "+42", false}, {"id", " 42", false}, {"id", "", false}, {"id", "-42", false}, {"big", "12345678901234567891", true},
		{"big", "12345678901234567890", false}, {"big", "1.2345678901234567891e19", true}, {"price", "-150", true}, {"price", "150", false},
		{"price", "-15", false}, {"price", "-1500e-1", true}, {"to", "a@example.com", true}, {"to", "a@example", false},
		{"to", `"a@example.com"`,
			false}, {"long", `say "hi" ü`, true},
		{"vip", "true", true}, {"vip", "false", false}, {"vip", "1", false}, {"gone", "null", true}, {"gone", "", false},
		{"customer.id", "c-7", true}, {"customer.id", "42", false}, {"customer", "c-7", false}, {"customer.42", "key", true},
		{"customer.id.x", "c-7", false}, {`customer.a\.b.x:y`, "1", true}, {`customer.a\.b.x\:y`, "1", true}, {"customer.a.b", "1", false},
		{"items.0.sku", "s0", true}, {"items.1.sku", "s1", true}, {"items.1.sku", "s0", false}, {"items.2.sku", "s1", false},
		{"items.sku", "s0", false}, {"items.-1.sku", "s1", false}, {"items.1.n.0", "0", true}, {"items.1.n.0", "-0", true},
		{"items.1.n.1", "7", true}, {"items.1.n.2", "7", false}, {"items.4294967296", "s0", false}, {"id2", "42", false},
		{"id2.0", "42", true}, {"none", "42", false},
	} {
		f := PayloadField{c.path, c.value}
		if got := f.matches([]byte(payload)); got != c.want {
			t.Errorf("%s:%s matches = %v, want %v", c.path, c.value, got, c.want)
		}
	}
	for _, other := range []string{"", "42", `"id"`, "[42]", "id: 42", "{", `{"id"`, `{"id":`, `{"id":}`, `{id:42}`, "\x00\xff",
		`{"x": [1, {]}, "id": 42}`} {
		if f := (PayloadField{"id", "42"}); f.matches([]byte(other)) {
			t.Errorf("%q matches id 42", other)
		}
	}
	both := Filter{Payload: []PayloadField{{"id", "42"}, {"vip", "true"}}}
	if !both.needsEnvelope() || both.onlyCounted() {
		t.Error("a filter with payload conditions does not ask for the envelope")
	}
}

func TestCheckPayload(t *testing.T) {
	deep := strings.Repeat("a.", maxPathKeys-1) + "a"
	fields := []PayloadField{{deep, "1"}, {strings.Repeat("x", maxPath), strings.Repeat("x", maxPayloadValue)}, {`a\.b`, ""},
		{`\.`, ""}, {`a\`, ""}}
	if err := CheckPayload(fields); err != nil {
		t.Error(err)
	}
	for says, fields := range map[string][]PayloadField{
		"9 conditions":      make([]PayloadField, maxPayloadFields+1),
		"257 bytes":         {{strings.Repeat("x", maxPath+1), "1"}},
		"1025 bytes":        {{"x", strings.Repeat("x", maxPayloadValue+1)}},
		"17 keys":           {{deep + ".a", "1"}},
		`"" has an empty`:   {{"", "1"}},
		`"a." has an`:       {{"a.", "1"}},
		`".a" has an`:       {{".a", "1"}},
		`"a..b" has an`:     {{"a..b", "1"}},
		`"a\\.b..c" has an`: {{`a\.b..c`, "1"}},
	} {
		var e *task.Error
		if err := CheckPayload(fields); !errors.As(err, &e) || e.Field != "payload" || !strings.Contains(e.Message, says) {
			t.Errorf("want an error with %q, got %v", says, err)
		}
	}
}

func FuzzPayloadField(f *testing.F) {
	f.Add(`{"a":[{"b.c":1}]}`, `a.0.b\.c`, "1.0e0")
	f.Fuzz(func(_ *testing.T, payload, path, value string) {
		if field := (PayloadField{path, value}); CheckPayload([]PayloadField{field}) == nil {
			field.matches([]byte(payload))
		}
	})
}

func BenchmarkPayloadField(b *testing.B) {
	payload := []byte(`{"rows":[` + strings.Repeat(`{"sku":"s-1","count":12,"price":99.5},`, 200) + `{}],"customer":{"id":42}}`)
	f := PayloadField{"customer.id", "42"}
	b.SetBytes(int64(len(payload)))
	for b.Loop() {
		if !f.matches(payload) {
			b.Fatal("no match")
		}
	}
}

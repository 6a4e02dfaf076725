package apijson

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzCheckJSONAgreesWithTheLibrary(f *testing.F) {
	for _, s := range []string{`{}`, `[]`, `{"a":[1,2.5e-3,"x\u00e9\n",true,false,null]}`, `"long string with \" and \\ and plain text"`,
		` 1 `, `01`, `-`, `"\x"`, `{"a" 1}`, "\"\x01\"", `[1,]`, `nul`, `1e`, `1.`, `""""`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if strings.Count(string(b), "[")+strings.Count(string(b), "{") > maxPayloadDepth {
			t.Skip()
		}
		want := json.Valid(b) && utf8.Valid(b)
		if got := CheckJSON(b); (got == nil) != want {
			t.Fatalf("CheckJSON(%q) = %v, want valid: %v", b, got, want)
		}
	})
}

func TestDeepPayloadIsRefused(t *testing.T) {
	deep := strings.Repeat("[", 1_000_000) + strings.Repeat("]", 1_000_000)
	if err := CheckJSON([]byte(deep)); err == nil {
		t.Fatal("a payload nested a million levels deep was accepted")
	}
}

func BenchmarkCheckJSON(b *testing.B) {
	text := []byte(`{"to":"` + strings.Repeat("x", 900) + `","n":[1,2,3,4,5,6,7,8,9,10],"ok":true}`)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if CheckJSON(text) != nil {
			b.Fatal()
		}
	}
}

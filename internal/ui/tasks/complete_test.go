package tasks

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/admin"
)

func TestLastWord(t *testing.T) {
	for text, want := range map[string][3]string{ // word, field, value
		"":                         {"", "", ""},
		"que":                      {"que", "que", ""},
		"queue:mail ":              {"", "", ""},
		"queue:mail sta":           {"sta", "sta", ""},
		"queue:mail\u3000state:de": {"state:de", "state", "de"},
		`error:"timed o`:           {`error:"timed o`, "error", "timed o"},
		`error:"timed out" key:ä`:  {"key:ä", "key", "ä"},
		`error:"say \"hi\" t`:      {`error:"say \"hi\" t`, "error", `say "hi" t`},
		`payload.a\:b.c\ d:x`:      {`payload.a\:b.c\ d:x`, `payload.a\:b.c\ d`, "x"},
		`payload.a\`:               {`payload.a\`, `payload.a\`, ""},
		"type:a:b":                 {"type:a:b", "type", "a:b"},
	} {
		before, word := lastWord(text)
		field, value, _ := cutField(word)
		if before+word != text || (want != [3]string{word, field, value}) {
			t.Errorf("%q ends with %q, field %q, value %q, want %q", text, word, field, value, want)
		}
	}
	for typed, want := range map[string]string{"de": "state:dead", "dead,po": "state:dead,poisoned", "dead,dea": "", "x": "",
		"S": "state:scheduled state:succeeded"} {
		var got []string
		for _, s := range stateValues(typed) {
			got = append(got, s.Text)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("state:%s is completed to %q, want %q", typed, got, want)
		}
	}
	if got := matching([]string{"mail.out", "email", "Mail", "", "mail.out", "x"}, "mA"); !slices.Equal(got,
		[]string{"mail.out", "Mail", "email"}) {
		t.Errorf("matching returned %q", got)
	}
}

func TestLeavesOf(t *testing.T) {
	got := fmt.Sprint(leavesOf([]byte(`{"b":{"c.d":1e2,"":0},"a":[{"x":true},{"x":false}],"n":null,"s":"t u","o":{},"l":[]}`)))
	if want := `[{a.0.x true} {b.c\.d 1e2} {n null} {s t u}]`; got != want {
		t.Errorf("leavesOf returned %s, want %s", got, want)
	}
	deep := strings.Repeat(`{"a":`, 50) + "1" + strings.Repeat("}", 50)
	wide := `{"a":1` + strings.Repeat(`,"b":1`, 1) + "}"
	for i := range 300 {
		wide = strings.TrimSuffix(wide, "}") + fmt.Sprintf(`,"k%d":1}`, i)
	}
	for payload, want := range map[string]int{"": 0, "{": 0, "42": 0, "[1]": 1, deep: 0, wide: maxPathsOfTask,
		`{"a":"` + strings.Repeat("x",
			maxPathPayload) + `"}`: 0} {
		if got := len(leavesOf([]byte(payload))); got != want {
			t.Errorf("leavesOf(%.40s) returned %d values, want %d", payload, got, want)
		}
	}
}

// FuzzEscapeKey: the suggestion for a key is parsed as the path of that key.
func FuzzEscapeKey(f *testing.F) {
	for _, key := range []string{`a.b:c"d e\`, "\u00a0a\u3000", "\n\t", "."} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		text := termsText([]term{{Field: "payload." + escapeKey(key), Value: "1"}})
		read, err := admin.ParseFilter(text, time.Time{})
		if err != nil {
			if key == "" || len(text) > maxFilterText || strings.Contains(err.Error(), "UTF-8") {
				return
			}
			t.Fatalf("%q: %v", text, err)
		}
		if len(read.Payload) != 1 || read.Payload[0].Path != escapeKey(key) || read.String() != text {
			t.Errorf("%q is parsed as %+v", text, read)
		}
	})
}

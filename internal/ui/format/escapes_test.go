package format

import "testing"

func TestEscapesAreRead(t *testing.T) {
	for _, c := range []struct {
		text, want string
		read       bool
	}{
		{`{"a":"b"}`, `{"a":"b"}`, false},
		{`"\u0645\u0631\u062d\u0628\u0627"`, `"مرحبا"`, true},
		{`"caf\u00e9 \ud83d\ude00!"`, `"café 😀!"`, true},
		{`"\u0022\u005c\u000a\u202e\u0000"`, `"\u0022\u005c\u000a\u202e\u0000"`, false}, // JSON requires them, or they would be invisible
		{`"\\u00e9 \\\u00e9"`, `"\\u00e9 \\é"`, true},                                   // a backslash, followed by the characters u00e9
		{`"\ud83d \ude00 \ud83d\u0041"`, `"\ud83d \ude00 \ud83dA"`, true},
		{`"\"\u00e9\n"`, `"\"é\n"`, true},
	} {
		got, read := decodeEscapes([]byte(c.text))
		if string(got) != c.want || read != c.read {
			t.Errorf("decodeEscapes(%s) = %s, %t, want %s, %t", c.text, got, read, c.want, c.read)
		}
	}
	d := DocumentOf([]byte(`{"name":"J\u00fcrgen"}`), "")
	if d.Text != "{\n  \"name\": \"Jürgen\"\n}" || d.Raw != `{"name":"J\u00fcrgen"}` {
		t.Errorf("the document has the text %q and the raw form %q", d.Text, d.Raw)
	}
	if d = DocumentOf([]byte(`{"name":"Jürgen"}`), ""); d.Raw != "" {
		t.Errorf("a document without escapes has a raw form too: %q", d.Raw)
	}
}

package tasklog

import (
	"slices"
	"strings"
	"testing"
)

func TestParseLogHeaders(t *testing.T) {
	many := slices.Repeat([]string{"x"}, maxNames+1)
	for _, c := range []struct {
		names []string
		want  string // of the error
	}{
		{[]string{strings.Repeat("n", maxName)}, ""},
		{[]string{"x_a.b-c~1"}, ""},
		{many[1:], ""},
		{many, "17 names, at most 16 are allowed"},
		{[]string{strings.Repeat("n", maxName+1)}, "has 65 bytes, at most 64 are allowed"},
		{[]string{"a", ""}, `"" is not the name of a header`},
		{[]string{"a b"}, `"a b" is not the name of a header`},
		{[]string{"a=b"}, `"a=b" is not the name of a header`},
		{[]string{"a\x00"}, `"a\x00" is not the name of a header`},
		{[]string{"é"}, `"é" is not the name of a header`},
		{[]string{"Authorization"}, `"Authorization" holds credentials`},
		{[]string{"proxy-authorization"}, `"proxy-authorization" holds credentials`},
		{[]string{"cookie"}, `"cookie" holds credentials`},
		{[]string{"set-cookie"}, `"set-cookie" holds credentials`},
	} {
		_, err := Parse(c.names)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("Parse(%q) = %v, want %q", c.names, err, c.want)
		}
	}
	names, err := Parse(Default())
	if err != nil || !slices.Equal(names, Default()) {
		t.Errorf("Parse of the defaults = %q, %v", names, err)
	}
	if names, err := Parse(nil); err != nil || names == nil || len(names) != 0 {
		t.Errorf("Parse(nil) = %#v, %v, want an empty list that is not nil", names, err)
	}
}

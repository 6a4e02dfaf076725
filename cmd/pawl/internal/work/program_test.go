package work

import (
	"io"
	"strings"
	"testing"
)

func TestLimitedAndLastBytes(t *testing.T) {
	l := &limited{limit: 4}
	n, err := io.Copy(l, strings.NewReader("abcdef"))
	if n != 6 || err != nil || string(l.data) != "abcd" || !l.over {
		t.Errorf("limited read %d, %v, and kept %q, over %t", n, err, l.data, l.over)
	}
	last := &lastBytes{limit: 4}
	for _, s := range []string{"abc", "defghi", "\xffjk\n"} {
		_, _ = last.Write([]byte(s))
	}
	if got := last.text(); got != "jk" {
		t.Errorf("lastBytes = %q, want jk", got)
	}
}

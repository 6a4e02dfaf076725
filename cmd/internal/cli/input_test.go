package cli

import (
	"strings"
	"testing"
)

func TestReadAll(t *testing.T) {
	for text, want := range map[string]string{"": "", "1234": "", "12345": "standard input: more than 4 bytes"} {
		data, err := ReadAll(strings.NewReader(text), "standard input", 4)
		if want == "" && (err != nil || string(data) != text) || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%q: %q, %v, want %q", text, data, err, want)
		}
	}
}

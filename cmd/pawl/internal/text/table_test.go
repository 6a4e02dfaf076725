package text

import (
	"bytes"
	"strings"
	"testing"
)

// TestPrintable: the content of tasks can't send control sequences to the terminal.
func TestPrintable(t *testing.T) {
	var out bytes.Buffer
	Columns(&out, "A|B", [][]string{{"\x1b[2Jx\ty\nz", "ü"}})
	if got, want := out.String(), "A           B\n [2Jx y z    ü\n"; strings.Contains(got, "\x1b") || strings.Count(got, "\n") != 2 {
		t.Errorf("columns = %q, want something like %q", got, want)
	}
}

package text

import (
	"bytes"
	"testing"
)

// TestPrintable: the content of tasks can't send control sequences to the terminal.
func TestPrintable(t *testing.T) {
	var out bytes.Buffer
	Columns(&out, "A|B", [][]string{{"\x1b[2Jx\ty\nz", "ü"}})
	if got, want := out.String(), "A          B\n [2Jx y z  ü\n"; got != want {
		t.Errorf("columns = %q, want %q", got, want)
	}
}

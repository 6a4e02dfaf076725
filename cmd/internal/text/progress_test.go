package text

import (
	"bytes"
	"strings"
	"testing"
)

func TestProgressBar(t *testing.T) {
	if got, want := bar("filled", 1, 4), "filled  "+strings.Repeat("━", 8)+strings.Repeat("─", 24)+"  1/4  25%"; got != want {
		t.Errorf("bar = %q, want %q", got, want)
	}
	var out bytes.Buffer
	b := &ProgressBar{w: &out, label: "x", total: 2}
	b.Set(2)
	b.Done()
	b.Set(1)
	if got := out.String(); !strings.HasPrefix(got, "\r") || strings.Count(got, "x  ") != 1 {
		t.Errorf("the bar was drawn as %q, want it once", got)
	}
	silent := NewProgressBar(&out, "x", 2)
	out.Reset()
	silent.Set(1)
	silent.Done()
	if out.Len() > 0 {
		t.Errorf("without a terminal, %q was drawn", out.String())
	}
}

package convert

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzCutText(f *testing.F) {
	for _, s := range []string{"", "short", "añb", "日本語日本語", "\xff\xfe\xfd\xfc\xfb", "ab\xe6\x97", strings.Repeat("é", 9)} {
		f.Add(s, 7)
	}
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit = max(0, min(limit, 1000))
		got := CutText(s, limit)
		if !utf8.ValidString(got) || len(got) > limit {
			t.Errorf("CutText(%q, %d) = %q, want valid UTF-8 within the limit", s, limit, got)
		}
		if utf8.ValidString(s) && (!strings.HasPrefix(s, got) || len(s) <= limit && got != s || len(got) < min(len(s), limit)-3) {
			t.Errorf("CutText(%q, %d) = %q, want the longest prefix", s, limit, got)
		}
	})
}

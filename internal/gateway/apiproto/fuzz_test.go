package apiproto

import "testing"

func FuzzCursor(f *testing.F) {
	f.Add("AXQA3GrPrABwAYAAAAAAAAAC")
	f.Fuzz(func(t *testing.T, s string) {
		b, err := DecodeCursor(TaskCursor, s)
		if err == nil && s != "" && EncodeCursor(TaskCursor, b) != s {
			t.Errorf("cursor %q was decoded as %x, which is encoded as %q", s, b, EncodeCursor(TaskCursor, b))
		}
	})
}

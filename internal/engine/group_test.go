package engine

import (
	"regexp"
	"testing"
)

var uuids = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

func TestNormalise(t *testing.T) {
	for in, want := range map[string]string{
		`dial 10.0.0.7:5432: refused`:                          `dial *.*.*.*:*: refused`,
		`order 01890a5d-ac96-774b-bcce-b302099a8057 is "open"`: `order * is *`,
		`user 42 not found`:                                    `user * not found`,
		`at 0xdeadbeef`:                                        `at *`,
		``:                                                     ``,
	} {
		if got := Normalise(in); got != want {
			t.Errorf("Normalise(%q) = %q, want %q", in, got, want)
		}
	}
}

package fingerprint

import (
	"regexp"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/task"
)

// variable matches what Normalize replaces with stars.
var variable = regexp.MustCompile(`"[^"]*"|'[^']*'|\b0x[0-9a-fA-F]+\b|\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|\b[0-9a-fA-F]*[0-9][0-9a-fA-F]{7,}\b|[0-9]+`)

func slowNormalize(message string) string {
	return task.Cut(variable.ReplaceAllString(task.Cut(message, maxRead), "*"), maxNormalized)
}

func TestNormalize(t *testing.T) {
	for in, want := range map[string]string{
		`dial 10.0.0.7:5432: refused`:                          `dial *.*.*.*:*: refused`,
		`order 01890a5d-ac96-774b-bcce-b302099a8057 is "open"`: `order * is *`,
		`user 42 not found`:                                    `user * not found`,
		`at 0xdeadbeef`:                                        `at *`,
		`deadbeef is a word, 1deadbeef and deadbeef12345678`:   `deadbeef is a word, * and *`,
		`worker3 can't open 'a b' for 12s`:                     `worker* can*a b' for *s`,
		`a 5" disk`:                                            `a *" disk`,
		``:                                                     ``,
	} {
		if got := Normalize(in); got != want {
			t.Errorf("Normalize(%q) = %q, want %q", in, got, want)
		}
	}
}

// FuzzNormalize compares Normalize with the equivalent regular expression.
func FuzzNormalize(f *testing.F) {
	const id = "01890a5d-ac96-774b-bcce-b302099a8057"
	for _, s := range []string{"", id, "x" + id, id + "x", "7-" + id, id + "-7", "_" + id, `"` + id, "0x", "0x1", "0xg1", "a0x12", "é0x12é", "12345678", "1234567",
		"abcdef0123456", "a1b2c3d4e5", "a_12345678", `"a" 'b" c' "`, `'"'"'`, "a\x00\xff1\xfe2", strings.Repeat("é", 160), strings.Repeat("x", 299) + "€",
		strings.Repeat(`"`, 3001), strings.Repeat("1 ", 1500), strings.Repeat("ab1 ", 500)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := Normalize(s), slowNormalize(s); got != want {
			t.Errorf("Normalize(%q) = %q, want %q", s, got, want)
		}
	})
}

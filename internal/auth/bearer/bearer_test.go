package bearer

import (
	"strings"
	"testing"
)

func TestSecret(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		s := New()
		if seen[s] || len(s) != secretLen || Check(s) != nil {
			t.Fatalf("New = %q: seen before %v, length %d, check %v", s, seen[s], len(s), Check(s))
		}
		seen[s] = true
	}
	s := New()
	for i := range s { // each character is covered by the checksum
		other := byte('x')
		if s[i] == other {
			other = 'y'
		}
		if Check(s[:i]+string(other)+s[i+1:]) == nil {
			t.Errorf("Check accepted %q with %q at %d", s, other, i)
		}
	}
	for _, bad := range []string{"", "pawl_", s + "0", s[1:], strings.ToUpper(s), strings.Repeat("\xff", secretLen)} {
		if err := Check(bad); err == nil || bad != "" && len(bad) > 6 && strings.Contains(err.Error(), bad) {
			t.Errorf("Check(%q) = %v, want an error that does not repeat it", bad, err)
		}
	}
}

// A secret that was issued stays valid, however the code changes: "pawl_", 43 letters and digits, and 6 for their checksum.
func TestSecretFormatIsStable(t *testing.T) {
	given := "pawl_skTOpymqTmcAw0XZZtfMq0jnv9I3qmxrPZyJg4wcH5x21S59m"
	if err := Check(given); err != nil || len(New()) != len(given) {
		t.Errorf("Check of an issued secret: %v; new ones have %d bytes, want %d", err, len(New()), len(given))
	}
	other := "pawn_" + given[len(Prefix):secretLen-sumLen]
	if Check(other+checksum(other)) == nil {
		t.Error("a secret with another prefix was accepted")
	}
}

package receive

import "testing"

// A changed limit changes what callers may do.
func TestLimitsOfReceiving(t *testing.T) {
	for what, c := range map[string][2]int{
		"a message's head": {messageHead, 5}, "nesting": {maxNesting, 100}, "what a text costs": {textCost, 32}, "what an entry costs": {entryCost, 128},
	} {
		if c[0] != c[1] {
			t.Errorf("%s: %d, want %d", what, c[0], c[1])
		}
	}
}

package receive

import "testing"

// These limits are part of what callers rely on. Changing one must be deliberate.
func TestLimitsAreStable(t *testing.T) {
	for what, c := range map[string][2]int{
		"a message's head": {messageHead, 5}, "nesting": {maxNesting, 100}, "what a text costs": {textCost, 32},
		"what an entry costs": {entryCost, 128},
	} {
		if c[0] != c[1] {
			t.Errorf("limit of %s = %d, want %d", what, c[0], c[1])
		}
	}
}

package apiproto

import "testing"

// These limits are part of what callers rely on. Changing one must be deliberate.
func TestLimitsAreStable(t *testing.T) {
	for what, c := range map[string][2]int{
		"breakers of a queue":     {maxBreakersShown, 100},
		"what is told of a queue": {maxToldOfQueue, 10},
		"a cursor's version":      {cursorVersion, 1},
	} {
		if c[0] != c[1] {
			t.Errorf("limit of %s = %d, want %d", what, c[0], c[1])
		}
	}
}

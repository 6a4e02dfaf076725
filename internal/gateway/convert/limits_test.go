package convert

import "testing"

// A changed limit changes what callers may do.
func TestLimitsStay(t *testing.T) {
	for what, c := range map[string][2]int{
		"breakers that are told":  {maxBreakersTold, 100},
		"what is told of a queue": {maxToldOfQueue, 10},
		"a cursor's version":      {cursorVersion, 1},
	} {
		if c[0] != c[1] {
			t.Errorf("%s: %d, want %d", what, c[0], c[1])
		}
	}
}

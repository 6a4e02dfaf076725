package node

import "testing"

func init() { segmentSize = 1 << 20 }

// bySameGoroutines skips a test in short runs, which make race does: the race detector sees the same goroutines in another test, which takes
// less time or covers more. What the skipped test decides is looked at in every run that is not short.
func bySameGoroutines(t *testing.T, as string) {
	t.Helper()
	if testing.Short() {
		t.Skipf("with -short %s stands for it", as)
	}
}

package node

import "testing"

func init() { segmentSize = 1 << 20 }

// bySameGoroutines skips a test in short runs, which make race does: another test, which takes less time or covers more, exercises
// the same goroutines under the race detector. The results of the skipped test are checked in every run that is not short.
func bySameGoroutines(t *testing.T, as string) {
	t.Helper()
	if testing.Short() {
		t.Skipf("with -short %s stands for it", as)
	}
}

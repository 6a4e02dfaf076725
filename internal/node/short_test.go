package node

import (
	"os"
	"testing"
)

func init() { segmentSize = 1 << 20 }

// long is true where minutes do not matter, as in make soak: tests of many similar cases try all of them, otherwise a sample.
var long = os.Getenv("PAWL_LONG") == "1"

// bySameGoroutines skips a test in short runs, which make race does: another test, which takes less time or covers more, exercises
// the same goroutines under the race detector. The results of the skipped test are checked in every run that is not short.
func bySameGoroutines(t *testing.T, as string) {
	t.Helper()
	if testing.Short() {
		t.Skipf("with -short %s stands for it", as)
	}
}

package node

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

func init() { segmentSize = 1 << 20 }

// long reports whether minutes do not matter, as in make soak: tests of many similar cases try all of them, otherwise a sample.
func long() bool { return os.Getenv("PAWL_LONG") != "" }

// sample returns a random number below n: which of n samples of the cases a run tries. PAWL_SEED repeats one.
func sample(t *testing.T, n int) int {
	t.Helper()
	at, err := strconv.Atoi(os.Getenv("PAWL_SEED"))
	if err != nil {
		at = rand.IntN(n)
	}
	t.Logf("PAWL_SEED=%d repeats this sample", at)
	return at % n
}

// bySameGoroutines skips a test in short runs, which make race does: another test, which takes less time or covers more, exercises
// the same goroutines under the race detector. The results of the skipped test are checked in every run that is not short.
func bySameGoroutines(t *testing.T, as string) {
	t.Helper()
	if testing.Short() {
		t.Skipf("with -short %s stands for it", as)
	}
}

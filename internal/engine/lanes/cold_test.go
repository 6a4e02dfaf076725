package lanes

import (
	"math"
	"testing"
	"unsafe"
)

// What a key that only waits takes in memory is promised: see docs/performance.md.
func TestColdLanesAreSmall(t *testing.T) {
	if size := unsafe.Sizeof(coldLane{}); size > 80 {
		t.Errorf("a cold lane takes %d bytes: with its key, its places and the map, a key no longer takes under 200", size)
	}
}

// A lane with more tasks than a cold one can count stays warm.
func TestColdLaneCountsAll(t *testing.T) {
	for count, want := range map[int64]bool{1: true, math.MaxInt32: true, math.MaxInt32 + 1: false} {
		l := Lane{count: count, scan: 7}
		if c, ok := l.chill(); ok != want || ok && int64(c.count) != count {
			t.Errorf("a lane of %d tasks: cold %t as %+v, want %t", count, ok, c, want)
		}
	}
}

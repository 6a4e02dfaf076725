package lanes

import (
	"testing"
	"unsafe"
)

// What a key that only waits takes in memory is promised: see docs/performance.md.
func TestColdLanesAreSmall(t *testing.T) {
	if size := unsafe.Sizeof(coldLane{}); size > 80 {
		t.Errorf("a cold lane takes %d bytes: with its key, its places and the map, a key no longer takes under 200", size)
	}
}

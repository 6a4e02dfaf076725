package serve

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// heapRoom is how many bytes, at least, a server may allocate between garbage collections. By default Go collects once
// as much has been allocated as is in use. A server has 10 to 15 MB in use, since tasks are in memory outside Go's heap
// or on disk, so it would collect 25 times a second and spend a tenth of its CPU time on that.
const heapRoom = 64 << 20

// leastShare limits the growth between collections from below, to 1/leastShare of the memory in use. A collection costs
// time in proportion to what it scans for pointers. Payloads have none: while hundreds of megabytes of them are in use,
// there is no reason to let as much garbage pile up.
const leastShare = 3

// A server that allocates less than restingBytes within restFor is idle.
const (
	restFor      = time.Second
	restingBytes = 2 << 20
)

// worthGivingBack is how many bytes must have been allocated, since unused memory was last returned to the system, to
// make a collection worthwhile.
const worthGivingBack = 8 << 20

const defaultPercent = 100

// giveHeapRoom makes collections rarer while little memory is in use, and returns memory to the system when the server
// is idle. If GOGC is set, only GOGC decides when to collect. GOMEMLIMIT applies in any case.
func giveHeapRoom() {
	if os.Getenv("GOGC") == "" {
		newHeapTuner().collected()
	}
}

// heapTuner adapts the GC percentage after every collection.
type heapTuner struct {
	mu        sync.Mutex
	percent   int    // the current GC percentage
	allocated uint64 // in bytes since the process started, as of the last look
	givenBack uint64 // allocated as of when unused memory was last returned
	look      *time.Timer
}

func newHeapTuner() *heapTuner {
	c := &heapTuner{percent: defaultPercent}
	c.look = time.AfterFunc(restFor, c.giveBack)
	return c
}

// collected runs after every collection: it attaches a cleanup to an unreachable object, which the next collection runs.
func (c *heapTuner) collected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := readHeap()
	c.allocated = h.allocated
	if want := heapPercent(h.live, h.scanned); want < c.percent*9/10 || want > c.percent*11/10 { // each change stops the world
		debug.SetGCPercent(want)
		c.percent = want
	}
	c.look.Reset(restFor)
	runtime.AddCleanup(new([16]byte), (*heapTuner).collected, c)
}

// giveBack returns unused memory to the system if the server is idle, and looks again later if it is not. Go does
// neither on its own: it collects only when as much has been allocated again, or after two minutes, and keeps the
// memory.
func (c *heapTuner) giveBack() {
	c.mu.Lock()
	h := readHeap()
	atRest, worth := h.allocated-c.allocated < restingBytes, h.allocated-c.givenBack >= worthGivingBack
	c.allocated = h.allocated
	switch {
	case worth && atRest:
		c.givenBack = h.allocated
	case worth:
		c.look.Reset(restFor)
	}
	c.mu.Unlock()
	if worth && atRest {
		runtime.GC() // sync.Pools keep their contents for one more collection
		debug.FreeOSMemory()
	}
}

// heapPercent returns the GC percentage for a heap, given how much of it is scanned for pointers.
func heapPercent(live, scanned uint64) int {
	live = max(live, 4<<20)
	return int(max(heapRoom, min(scanned, live), live/leastShare) * 100 / live)
}

// heap holds figures of memory use, in bytes.
type heap struct {
	allocated uint64 // since the process started
	live      uint64 // in use after the last collection
	scanned   uint64 // what the next collection must scan for pointers
}

func readHeap() heap {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/heap:bytes"}}
	metrics.Read(s)
	return heap{allocated: s[0].Value.Uint64(), live: s[1].Value.Uint64(), scanned: s[2].Value.Uint64()}
}

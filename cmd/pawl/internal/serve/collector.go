package serve

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// heapRoom is how many bytes a server may allocate, at least, before memory that nobody uses is collected. By default Go collects once as
// much was allocated as is in use: that of a server is 10 to 15 MB, since tasks are in memory outside of Go's heap or on disk, and
// so it would collect 25 times a second, for a tenth of its CPU.
const heapRoom = 64 << 20

// leastShare is the part of the memory in use that may be allocated, at least, before the next collection. To collect costs what there is to
// scan for pointers. Payloads have none: while hundreds of megabytes of them are in use, there is no reason to let as many lie about unused.
const leastShare = 3

// A server that allocates less than restingBytes in restFor is at rest.
const (
	restFor      = time.Second
	restingBytes = 2 << 20
)

// worthGivingBack is how many bytes must have been allocated, since unused memory was last given back, for it to be worth a collection.
const worthGivingBack = 8 << 20

const defaultPercent = 100

// giveHeapRoom has memory collected less often while little is in use, and given back to the system when the server is at rest. If GOGC is
// set, it alone says how often memory is collected. GOMEMLIMIT holds in any case.
func giveHeapRoom() {
	if os.Getenv("GOGC") == "" {
		newHeapTuner().collected()
	}
}

// heapTuner follows the memory in use from collection to collection.
type heapTuner struct {
	mu        sync.Mutex
	percent   int    // the growth at which to collect
	allocated uint64 // bytes, since the process began, at the last look
	givenBack uint64 // allocated when unused memory was last given back
	look      *time.Timer
}

func newHeapTuner() *heapTuner {
	c := &heapTuner{percent: defaultPercent}
	c.look = time.AfterFunc(restFor, c.giveBack)
	return c
}

// collected runs after each collection: what nobody holds is cleaned up in the next one.
func (c *heapTuner) collected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := readHeap()
	c.allocated = h.allocated
	if want := heapPercent(h.live, h.scanned); want < c.percent*9/10 || want > c.percent*11/10 { // each change stops all goroutines for a moment
		debug.SetGCPercent(want)
		c.percent = want
	}
	c.look.Reset(restFor)
	runtime.AddCleanup(new([16]byte), (*heapTuner).collected, c)
}

// giveBack gives unused memory back to the system if the server is at rest, and looks again later if it is not. Go does neither: it
// collects only when as much was allocated again, or after two minutes, and keeps room for that.
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
		runtime.GC() // pools keep what they hold for one collection more
		debug.FreeOSMemory()
	}
}

// heapPercent is the growth at which to collect, in percent of what is in use, by how much of that is scanned for pointers.
func heapPercent(live, scanned uint64) int {
	live = max(live, 4<<20)
	return int(max(heapRoom, min(scanned, live), live/leastShare) * 100 / live)
}

// heap says how memory is used, in bytes.
type heap struct {
	allocated uint64 // since the process began
	live      uint64 // in use after the last collection
	scanned   uint64 // what the next collection has to scan for pointers
}

func readHeap() heap {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/heap:bytes"}}
	metrics.Read(s)
	return heap{allocated: s[0].Value.Uint64(), live: s[1].Value.Uint64(), scanned: s[2].Value.Uint64()}
}

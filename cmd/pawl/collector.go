package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// heapRoom is how many bytes a server may allocate, at least, before memory that nobody uses is collected. By default Go collects once as
// much was allocated as is in use: that of a server is 10 to 15 MB, since tasks are in memory outside of Go's heap or on disk, and
// so it would collect 25 times a second, for a tenth of its CPU.
const heapRoom = 32 << 20

// leastShare is the part of the memory in use that may be allocated, at least, before the next collection. To collect costs what there is to
// scan for pointers. Payloads have none: while hundreds of megabytes of them are in use, there is no reason to let as many lie about unused.
const leastShare = 3

// giveHeapRoom has memory collected less often while little is in use. Who set GOGC has said how often; GOMEMLIMIT holds anyhow.
func giveHeapRoom() {
	if os.Getenv("GOGC") == "" {
		adjustHeap(defaultPercent)
	}
}

const defaultPercent = 100

// adjustHeap follows the memory in use from collection to collection: what nobody holds is cleaned up in the next one.
func adjustHeap(percent int) {
	if want := heapPercent(heapInUse()); want < percent*9/10 || want > percent*11/10 { // each change stops all goroutines for a moment
		debug.SetGCPercent(want)
		percent = want
	}
	runtime.AddCleanup(new([16]byte), adjustHeap, percent)
}

// heapPercent is the growth at which to collect, in percent of what is in use, by how much of that is scanned for pointers.
func heapPercent(live, scanned uint64) int {
	live = max(live, 4<<20)
	return int(max(heapRoom, min(scanned, live), live/leastShare) * 100 / live)
}

// heapInUse is what was in use after the last collection, and what the next one has to scan, in bytes.
func heapInUse() (live, scanned uint64) {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/heap:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64(), s[1].Value.Uint64()
}

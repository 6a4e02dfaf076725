package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// heapRoom is how much a server may allocate, in bytes, before memory that nobody uses is collected. As it comes, Go collects once
// as much was allocated as is in use: that of a server is 10 to 15 MB, since tasks are in memory outside of Go's heap or on disk, and
// so it would collect 25 times a second, for a tenth of its CPU.
const heapRoom = 32 << 20

// giveHeapRoom has memory collected less often while little is in use. Who set GOGC has said how often; GOMEMLIMIT holds anyhow.
func giveHeapRoom() {
	if os.Getenv("GOGC") == "" {
		adjustHeap(defaultPercent)
	}
}

const defaultPercent = 100

// adjustHeap follows the memory in use from collection to collection: what nobody holds is cleaned up in the next one.
func adjustHeap(percent int) {
	if want := heapPercent(liveHeap()); want < percent*9/10 || want > percent*11/10 { // each change stops all goroutines for a moment
		debug.SetGCPercent(want)
		percent = want
	}
	runtime.AddCleanup(new([16]byte), adjustHeap, percent)
}

// heapPercent is the growth at which to collect, in percent of what is in use.
func heapPercent(live uint64) int {
	return max(defaultPercent, int(heapRoom*100/max(live, 4<<20)))
}

// liveHeap is what was in use after the last collection, in bytes.
func liveHeap() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

package serve

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestHeapPercent(t *testing.T) {
	for _, c := range []struct {
		live, scanned uint64
		want          int
	}{
		{0, 0, 1600}, {4 << 20, 0, 1600}, {16 << 20, 16 << 20, 400}, {64 << 20, 0, 100}, {128 << 20, 0, 50},
		{1 << 30, 1 << 30, 100}, {1 << 30, 2 << 30, 100}, {1 << 30, 512 << 20, 50}, {1 << 30, 64 << 20, 33}, {1 << 30, 0, 33},
	} {
		if got := heapPercent(c.live, c.scanned); got != c.want {
			t.Errorf("with %d bytes in use and %d of them scanned, the GC percentage is %d %%, want %d", c.live, c.scanned, got, c.want)
		}
	}
}

func TestHeapLimitFollowsUsage(t *testing.T) {
	before := growth()
	t.Setenv("GOGC", "100") // restored at the end
	giveHeapRoom()
	if got := growth(); got != before {
		t.Errorf("although GOGC is set, the GC percentage changed from %d to %d %%", before, got)
	}
	if err := os.Unsetenv("GOGC"); err != nil {
		t.Fatal(err)
	}
	giveHeapRoom()
	until(t, "has room", func(percent uint64) bool { return percent > defaultPercent })
	held := make([]byte, 2*heapRoom)
	until(t, "has no more than its share of bytes", func(percent uint64) bool { return percent < defaultPercent })
	runtime.KeepAlive(held)
	pointers := make([]*byte, 2*heapRoom/8)
	until(t, "has what Go gives for pointers", func(percent uint64) bool { return percent > 90 && percent <= defaultPercent })
	runtime.KeepAlive(pointers)
	until(t, "has room again", func(percent uint64) bool { return percent > defaultPercent })
}

// until collects garbage until the GC percentage is as expected.
func until(t *testing.T, what string, is func(percent uint64) bool) {
	for range 1000 {
		if is(growth()) {
			return
		}
		runtime.GC()
	}
	t.Errorf("the heap never %s: the GC percentage is %d %%", what, growth())
}

// growth returns the current GC percentage.
func growth() uint64 {
	s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

func TestIdleServerReturnsMemory(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // so that no other collection runs
	tuner := &heapTuner{percent: 800, look: time.AfterFunc(time.Hour, func() {})}
	tuner.look.Stop()
	tuner.allocated = readHeap().allocated
	waste(64 << 20)

	before := released() // the runtime returns some by itself meanwhile
	tuner.giveBack()
	if got := released(); got > before+(32<<20) {
		t.Errorf("a busy server returned %d bytes to the system", got-before)
	}
	if !tuner.look.Stop() {
		t.Error("no check is scheduled for when the server is at rest")
	}
	before = released()
	tuner.giveBack()
	if got := released(); got < before+(48<<20) {
		t.Errorf("a server at rest returned %d bytes, want most of the unused 64 MiB", int64(got-before)) // #nosec G115 -- far smaller
	}
	tuner.allocated = 0 // as if the server were busy again
	tuner.giveBack()
	if tuner.look.Stop() {
		t.Error("with nothing to return, another check is scheduled")
	}
}

// waste creates n bytes of garbage.
func waste(n int) {
	b := make([]byte, n)
	for i := 0; i < n; i += 4096 {
		b[i] = 1
	}
	runtime.KeepAlive(b)
}

// released returns how much memory has been returned to the system and not reclaimed.
func released() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

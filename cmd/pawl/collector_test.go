package main

import (
	"os"
	"runtime"
	"runtime/metrics"
	"testing"
)

func TestHeapPercent(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{{0, 800}, {4 << 20, 800}, {16 << 20, 200}, {32 << 20, 100}, {1 << 30, 100}} {
		if got := heapPercent(c.live); got != c.want {
			t.Errorf("%d bytes in use: collected at a growth of %d %%, want %d", c.live, got, c.want)
		}
	}
}

func TestHeapRoomFollowsWhatIsInUse(t *testing.T) {
	before := growth()
	t.Setenv("GOGC", "100") // put back at the end
	giveHeapRoom()
	if got := growth(); got != before {
		t.Errorf("GOGC says how often, and yet the growth at which to collect went from %d to %d %%", before, got)
	}
	if err := os.Unsetenv("GOGC"); err != nil {
		t.Fatal(err)
	}
	giveHeapRoom()
	until(t, "has room", func(percent uint64) bool { return percent > defaultPercent })
	held := make([]byte, 2*heapRoom)
	until(t, "has no more than Go gives", func(percent uint64) bool { return percent == defaultPercent })
	runtime.KeepAlive(held)
	until(t, "has room again", func(percent uint64) bool { return percent > defaultPercent })
}

// until collects until the growth at which to collect is as it should.
func until(t *testing.T, what string, is func(percent uint64) bool) {
	for range 1000 {
		if is(growth()) {
			return
		}
		runtime.GC()
	}
	t.Errorf("the heap never %s: collected at a growth of %d %%", what, growth())
}

// growth is the growth at which memory is collected, in percent.
func growth() uint64 {
	s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

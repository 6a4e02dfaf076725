package bench

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the CPU time that a process on this machine has used, or 0 if it is unknown. It reads the process's
// CPU clock, which counts nanoseconds: /proc counts in steps of 10 ms, and a client may use less than that in a whole
// measurement.
func cpuTime(pid int) time.Duration {
	var used unix.Timespec
	if pid == 0 || unix.ClockGettime(cpuClock(pid), &used) != nil {
		return 0
	}
	return time.Duration(used.Nano())
}

// cpuClock returns the id of a process's CPU clock, as clock_getcpuclockid(3) does. Bit 2 would make it a thread's.
func cpuClock(pid int) int32 {
	const cpuclockSched = 2
	return int32(^pid)<<3 | cpuclockSched // #nosec G115 -- the kernel's pids have at most 22 bits
}

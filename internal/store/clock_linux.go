package store

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot includes suspension, which Go's own monotonic time does not on Linux.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err) // Linux has it since 2.6.39
	}
	return time.Duration(ts.Nano())
}

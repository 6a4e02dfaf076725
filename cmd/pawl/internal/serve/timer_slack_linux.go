package serve

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// timerSlack is how long the kernel may delay a sleep of the server's threads, instead of its default of 50 µs. It is
	// also the most by which a timer can be late.
	timerSlack = time.Millisecond
	// timerSlackVariable marks the environment of a process that has re-executed itself, in case the kernel does not keep the slack.
	timerSlackVariable = "PAWL_TIMER_SLACK_SET"
)

// relaxTimers lets the kernel delay this process's timers by timerSlack. It re-executes the same command in the same
// process, since threads inherit the slack and Go has already started some. If that is not possible it changes nothing.
//
// Go's monitor thread sleeps for 20 µs at a time while there is work. With the kernel's default slack those sleeps cost
// a virtual machine up to 40 % of the server's CPU time (docs/decisions/0064-timer-slack.md).
func relaxTimers() {
	_, restarted := os.LookupEnv(timerSlackVariable)
	_ = os.Unsetenv(timerSlackVariable)
	program, err := os.Executable()
	if restarted || err != nil {
		return
	}
	runtime.LockOSThread() // the slack is per thread
	defer runtime.UnlockOSThread()
	before, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || time.Duration(before) >= timerSlack {
		return
	}
	if unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0, 0, 0) != nil {
		return
	}
	_ = syscall.Exec(program, os.Args, append(os.Environ(), timerSlackVariable+"=1")) // returns only on failure
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(before), 0, 0, 0)
}

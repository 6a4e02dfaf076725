package program

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A handler can't read the environment of the worker: the kernel keeps it from other processes of the same user.
func TestPrivate(t *testing.T) {
	dumpable := func() int {
		n, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := dumpable()
	t.Cleanup(func() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, uintptr(before), 0, 0, 0) })
	if err := private(); err != nil || dumpable() != 0 {
		t.Errorf("%v; the process is still readable: %d", err, dumpable())
	}
}

package program

import "golang.org/x/sys/unix"

// private keeps other processes of its user, such as handlers, from reading this process's memory and environment, which may hold the
// token.
func private() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

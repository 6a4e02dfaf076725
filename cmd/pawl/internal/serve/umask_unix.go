//go:build unix

package serve

import "syscall"

// keepFilesPrivate makes all files created from now on readable by the process's user only: the storage engine itself
// creates them with wider modes.
func keepFilesPrivate() { syscall.Umask(0o077) }

//go:build unix

package serve

import "syscall"

// keepFilesPrivate lets nobody but the process's user read the files that it makes from now on: the storage engine asks for less.
func keepFilesPrivate() { syscall.Umask(0o077) }

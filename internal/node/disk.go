package node

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

const lockFile = "LOCK"

// lockDir makes this process the only one on a data directory, until the file is closed.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s is in use by another process", dir)
	}
	return f, nil
}

// room watches the free space of the data directory, so that enqueues are refused before the disk is full: a storage
// engine out of space stops for good, and acks need some.
type room struct {
	dir   string
	min   int64
	free  func(dir string) (int64, error)
	next  atomic.Int64 // when to look again, in Unix nanoseconds
	short atomic.Bool
}

// roomLook is how often the free space is read at most. In that time, at 500 MB/s, 10 MB are written. To read it takes a
// microsecond.
const roomLook = 20 * time.Millisecond

// check refuses with unavailable when there is too little room.
func (r *room) check() error {
	now := time.Now().UnixNano()
	if next := r.next.Load(); now >= next && r.next.CompareAndSwap(next, now+int64(roomLook)) {
		free, err := r.free(r.dir)
		r.short.Store(err == nil && free < r.min)
	}
	if r.short.Load() {
		return task.Unavailable(5*time.Second, "the disk has less than %d MiB free: no new tasks are taken, those that are there go on", r.min>>20)
	}
	return nil
}

func freeBytes(dir string) (int64, error) {
	free, _, err := diskBytes(dir)
	return free, err
}

// diskBytes says how large the disk of a directory is, and how much of it is free.
func diskBytes(dir string) (free, total int64, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), int64(s.Blocks) * int64(s.Bsize), nil
}

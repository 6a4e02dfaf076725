package datadir

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// Space watches the free space of the data directory, so that enqueues are refused before the disk is full: a storage engine out of
// space stops for good, and acks need some.
type Space struct {
	Node   string
	Dir    string
	Min    int64                           // bytes; less is too little
	Free   func(dir string) (int64, error) // bytes
	Logger *slog.Logger

	next  atomic.Int64 // when to check again, in Unix nanoseconds
	short atomic.Bool

	mu          sync.Mutex
	full        bool
	enoughSince time.Time // since when there has been enough again, while full; zero: there isn't
}

const (
	// spaceCheckInterval is the minimum time between two checks of the free space. In that time, at 500 MB/s, 10 MB are written. A check
	// takes a microsecond.
	spaceCheckInterval = 20 * time.Millisecond
	// A full node counts as full until it has had a quarter more than the minimum free for spareFor: once it leads again, as much
	// will be written as when it last led.
	spareFraction = 4
	spareFor      = 30 * time.Second
)

// Check returns an unavailable error when there is too little space.
func (r *Space) Check() error {
	now := time.Now().UnixNano()
	if next := r.next.Load(); now >= next && r.next.CompareAndSwap(next, now+int64(spaceCheckInterval)) {
		free, err := r.Free(r.Dir)
		r.short.Store(err == nil && free < r.Min)
	}
	if r.short.Load() {
		return task.Unavailable(5*time.Second, "the disk of node %s has less than %d MiB free (--min-free): no new tasks are accepted, existing ones continue", r.Node, r.Min>>20)
	}
	return nil
}

// isFull reports whether others should lead this node's shards because its disk is full, and whether that has changed.
func (r *Space) isFull(now time.Time) (full, changed bool) {
	free, err := r.Free(r.Dir)
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.full
	switch {
	case err != nil: // unknown
	case free < r.Min:
		r.full, r.enoughSince = true, time.Time{}
	case !r.full:
	case free < r.Min+r.Min/spareFraction:
		r.enoughSince = time.Time{}
	case r.enoughSince.IsZero():
		r.enoughSince = now
	case now.Sub(r.enoughSince) >= spareFor:
		r.full = false
	}
	return r.full, r.full != was
}

// CheckFull reports whether the disk is full, and logs when that changes.
func (r *Space) CheckFull() bool {
	if r == nil {
		return false
	}
	full, changed := r.isFull(time.Now())
	switch {
	case full && changed:
		r.Logger.Error("the disk has less than --min-free left: no new tasks are accepted here, and other nodes take over the shards of this one, if they have room",
			"dir", r.Dir, "min_free_bytes", r.Min)
	case changed:
		r.Logger.Info("the disk has room again", "dir", r.Dir, "min_free_bytes", r.Min)
	}
	return full
}

// DiskBytes returns the size of a directory's disk, and how much of it is free.
func DiskBytes(dir string) (free, total int64, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), int64(s.Blocks) * int64(s.Bsize), nil
}

package datadir

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
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
	refused     map[uint32]NoRoom // snapshots, by shard
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
		return task.Unavailable(5*time.Second, "the disk of node %s has less than %d MiB free (--min-free): no new tasks are accepted, "+
			"existing ones continue", r.Node, r.Min>>20)
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

// NoRoom is a snapshot that a node refused, because its disk has no room for it.
type NoRoom struct {
	Shard uint32
	Bytes int64
	At    time.Time // when it was last refused
}

// refusalKept is how long the refusal of a snapshot counts unless it is repeated: longer than the leader waits before it sends it again.
const refusalKept = time.Minute

// MustHold refuses the snapshot of a shard that does not fit: beside it, the minimum must stay free.
func (r *Space) MustHold(shard uint32, size uint64) error {
	if r == nil {
		return nil
	}
	free, err := r.Free(r.Dir)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || free-r.Min >= int64(size) {
		delete(r.refused, shard)
		return nil
	}
	if r.refused == nil {
		r.refused = map[uint32]NoRoom{}
	}
	if _, before := r.refused[shard]; !before {
		r.Logger.Error("the disk has no room for the state of a shard: this replica can't be filled until it has", "shard",
			shard, "dir", r.Dir, "bytes", size, "free_bytes", free, "min_free_bytes", r.Min)
	}
	r.refused[shard] = NoRoom{Shard: shard, Bytes: int64(size), At: time.Now()}
	return fmt.Errorf("the disk of node %s has %d MiB free: the state of shard %d takes %d MiB, and %d MiB must stay free (--min-free)",
		r.Node, free>>20, shard, size>>20, r.Min>>20)
}

// NoRoom returns the snapshots that were refused recently, in the order of their shards.
func (r *Space) NoRoom() (list []NoRoom) {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.refused, func(_ uint32, n NoRoom) bool { return time.Since(n.At) > refusalKept })
	return slices.SortedFunc(maps.Values(r.refused), func(a, b NoRoom) int { return cmp.Compare(a.Shard, b.Shard) })
}

// CheckFull reports whether the disk is full, and logs when that changes.
func (r *Space) CheckFull() bool {
	if r == nil {
		return false
	}
	full, changed := r.isFull(time.Now())
	switch {
	case full && changed:
		r.Logger.Error("the disk has less than --min-free left: no new tasks are accepted here, and other nodes take over the "+
			"shards of this one, if they have room",
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

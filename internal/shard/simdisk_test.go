package shard

import (
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// disk is the disk of a life. It may lose power, be slow, hang or fail.
type disk struct {
	world *world
	files *memDisk
	fuse  atomic.Int64 // blows after that many writes; 0 and below: never

	dead  atomic.Bool               // the power is gone: from now on the life's answers don't count
	lost  chan struct{}             // closed when the power is gone
	after atomic.Pointer[vfs.MemFS] // what the disk holds then
	delay atomic.Int64              // nanoseconds per sync
	fault atomic.Pointer[fault]     // nil: none
	ended chan struct{}             // closed when the life has ended itself, as it must with a faulty disk
	once  sync.Once                 // of ended
}

// fault is how a disk misbehaves from some moment on.
type fault struct {
	hangs bool   // on every sync, until the power goes
	op    string // otherwise it fails once, on a "sync" or "write"
	dir   string // in this directory
	file  string // of a file whose name has this suffix
	met   chan struct{}
	once  sync.Once
}

func newDisk(w *world, mem *vfs.MemFS, fuse int) *disk {
	d := &disk{world: w, files: &memDisk{MemFS: mem}, lost: make(chan struct{}), ended: make(chan struct{})}
	d.fuse.Store(int64(fuse))
	return d
}

// memDisk keeps crashes out of Lock, which takes the lock of MemFS twice: with a CrashClone waiting in between, it would deadlock
// with itself.
type memDisk struct {
	*vfs.MemFS
	crash sync.RWMutex
}

func (d *memDisk) Lock(name string) (io.Closer, error) {
	d.crash.RLock()
	defer d.crash.RUnlock()
	return d.MemFS.Lock(name)
}

func (d *memDisk) CrashClone(cfg vfs.CrashCloneCfg) *vfs.MemFS {
	d.crash.Lock()
	defer d.crash.Unlock()
	return d.MemFS.CrashClone(cfg)
}

// fs returns the disk as the life sees it.
func (d *disk) fs() vfs.FS { return errorfs.Wrap(d.files, errorfs.InjectorFunc(d.write)) }

// write is called before each write. At the last one of the fuse the power fails, in the middle of whatever operation the write is part
// of: the disk keeps what was synced and some of the rest.
func (d *disk) write(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
		return nil
	}
	if d.fuse.Add(-1) == 0 {
		d.losePower()
	}
	switch op.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		return d.sync(op.Path)
	case errorfs.OpFileWrite, errorfs.OpFileWriteAt:
		return d.fail("write", op.Path)
	}
	return nil
}

// sync is slow, hangs or fails. Files of the state are synced in the background, and never slowly: while Pebble waits
// for such a sync, it makes others wait for a mutex, and fake time stands still.
func (d *disk) sync(path string) error {
	f := d.fault.Load()
	if strings.HasPrefix(path, "/d/raft") {
		if delay := d.delay.Load(); delay > 0 {
			d.untilPowerGoes(time.Duration(delay))
		}
		if f != nil && f.hangs {
			f.once.Do(func() { close(f.met) })
			<-d.lost
		}
	}
	return d.fail("sync", path)
}

func (d *disk) untilPowerGoes(atMost time.Duration) {
	select {
	case <-time.After(atMost):
	case <-d.lost:
	}
}

// fail returns the single failure of a disk, if it is due. The unsynced part of the log is then lost, even though the next sync
// succeeds, as happens if a page cache drops what it could not write.
func (d *disk) fail(op, path string) (err error) {
	f := d.fault.Load()
	if f == nil || f.op != op || !strings.HasPrefix(path, f.dir) || !strings.HasSuffix(path, f.file) {
		return nil
	}
	f.once.Do(func() {
		if f.file == ".log" {
			d.freeze()
		}
		close(f.met)
		err = errorfs.ErrInjected
	})
	return err
}

// failed records that a life can't continue.
func (l *life) failed(err error) {
	switch {
	case l.dead.Load():
	case l.fatal != nil:
		l.fatal(err)
	case l.fault.Load() == nil:
		l.w.errorf("node %d: %v", l.id, err)
	default:
		l.once.Do(func() { close(l.disk.ended) })
	}
}

func (d *disk) losePower() {
	if d.dead.CompareAndSwap(false, true) {
		d.freeze()
		close(d.lost)
	}
}

// freeze decides what the next life finds on the disk: what was synced, and some of the rest.
func (d *disk) freeze() {
	if d.after.Load() != nil {
		return
	}
	percent := []int{0, 0, 20, 50, 80, 100}[d.world.intn(6)]
	if percent > 0 || d.world.intn(2) == 0 {
		d.keepNames()
	}
	d.after.CompareAndSwap(nil, d.files.CrashClone(vfs.CrashCloneCfg{
		UnsyncedDataPercent: percent,
		RNG:                 rand.New(rand.NewPCG(d.world.seed, uint64(d.world.intn(1<<30)))),
	}))
	if percent%100 != 0 {
		d.world.some.hit("torn writes")
	}
}

// keepNames makes the names of all files survive. CrashClone would keep any subset of them, but journaled file systems keep
// all up to some moment, and Pebble relies on that: it creates a MANIFEST and its marker, then syncs the directory once.
func (d *disk) keepNames() {
	for _, dir := range []string{"/", "/d", "/d/raft", "/d/raft/log", "/d/state", "/d/state.staged", "/d/state.ready"} {
		if f, err := d.files.OpenDir(dir); err == nil { // if it exists yet
			if err := errors.Join(f.Sync(), f.Close()); err != nil {
				d.world.errorf("%v", err)
			}
		}
	}
}

// breakDisk makes a node's disk fail or hang at an upcoming write, and checks that the replica ends itself: immediately, or
// after the disk has hung for 5 s. The replica answers calls meanwhile, and those answers count.
func (w *world) breakDisk(l *life, f *fault) {
	what, limit := "disk fails", time.Second
	if f.hangs {
		what, limit = "disk hangs", 8*time.Second
	}
	f.met = make(chan struct{})
	l.fault.Store(f)
	select {
	case <-f.met:
	case <-time.After(3 * time.Second): // nothing writes there
		return
	}
	w.some.hit(what)
	select {
	case <-l.disk.ended:
		w.wait(w.ms(500))
	case <-time.After(limit):
		w.errorf("node %d goes on %v after its %s (%s %s)", l.replica, limit, what, f.op, f.file)
	}
}

// someFault returns a random fault of a life's disk.
func (l *life) someFault() *fault {
	if l.w.intn(8) < 3 {
		return &fault{hangs: true}
	}
	return l.failure()
}

// failure returns a random call that fails on a life's disk.
func (l *life) failure() *fault {
	switch l.w.intn(5) {
	case 0:
		return &fault{op: "write", dir: "/d/raft/", file: "marks"}
	case 1:
		return &fault{op: "sync", dir: "/d/raft/", file: "marks"}
	case 2:
		return &fault{op: "write", dir: "/d/state/", file: ".sst"}
	default:
		return &fault{op: "sync", dir: "/d/raft/", file: ".log"}
	}
}

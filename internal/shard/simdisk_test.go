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

// disk is what a life writes to. It loses power, is slow, hangs, or fails.
type disk struct {
	world *world
	files *memDisk
	fuse  atomic.Int64 // blows after as many writes; 0 and below: never

	dead  atomic.Bool               // the power is gone: what the life says from now on doesn't count
	lost  chan struct{}             // closed when the power is gone
	after atomic.Pointer[vfs.MemFS] // what the disk holds then
	delay atomic.Int64              // nanoseconds that each sync takes
	fault atomic.Pointer[fault]     // nil: it is sound
	ended chan struct{}             // closed when the life has ended itself, as it must with such a disk
	once  sync.Once                 // of ended
}

// fault is what a disk does from some moment on.
type fault struct {
	hangs bool   // at each sync, until the power goes
	op    string // else it fails once, at a "sync" or "write"
	dir   string // in this directory
	file  string // of a file whose name ends so
	met   chan struct{}
	once  sync.Once
}

func newDisk(w *world, mem *vfs.MemFS, fuse int) *disk {
	d := &disk{world: w, files: &memDisk{MemFS: mem}, lost: make(chan struct{}), ended: make(chan struct{})}
	d.fuse.Store(int64(fuse))
	return d
}

// memDisk keeps a crash out of Lock, which takes the lock of MemFS twice: with a CrashClone waiting in between, it would wait
// for itself.
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

// fs is the disk as the life sees it.
func (d *disk) fs() vfs.FS { return errorfs.Wrap(d.files, errorfs.InjectorFunc(d.write)) }

// write is asked before each write. The last one of the fuse finds the power gone, halfway through whatever it is part
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

// sync is slow, hangs or fails. Files of the state are synced in the background, and their disk is as fast as ever: while
// that lags, Pebble makes others wait for a mutex, and fake time stands still.
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

// fail is the one failure of a disk, if it is due. What wasn't synced of the log then is gone, though the next sync
// succeeds, as it does where a page cache drops what it could not write.
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

// failed hears of a life that can't go on.
func (l *life) failed(err error) {
	switch {
	case l.dead.Load():
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

// freeze decides what the next life finds on the disk: what is synced, and some of the rest.
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

// keepNames makes all names of files survive. CrashClone would keep any of them, but file systems with a journal keep
// all up to some moment, and Pebble needs that: it creates a MANIFEST and its marker, then syncs the directory once.
func (d *disk) keepNames() {
	for _, dir := range []string{"/", "/d", "/d/raft", "/d/raft/log", "/d/state", "/d/state.staged", "/d/state.ready"} {
		if f, err := d.files.OpenDir(dir); err == nil { // if it is there yet
			if err := errors.Join(f.Sync(), f.Close()); err != nil {
				d.world.errorf("%v", err)
			}
		}
	}
}

// breakDisk has the disk of a node fail or hang at a write that comes soon, and sees that the replica ends itself: at once,
// or when the disk has hung for 5 s. It answers calls meanwhile, and those answers count.
func (w *world) breakDisk(l *life, f *fault) {
	what, limit := "disk fails", time.Second
	if f.hangs {
		what, limit = "disk hangs", 8*time.Second
	}
	f.met = make(chan struct{})
	l.fault.Store(f)
	select {
	case <-f.met:
	case <-time.After(3 * time.Second): // nobody writes there
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

// someFault is what may be wrong with a life's disk.
func (l *life) someFault() *fault {
	if l.w.intn(8) < 3 {
		return &fault{hangs: true}
	}
	return l.failure()
}

// failure is a call that may fail on a life's disk.
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

package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

var errBroken = errors.New("disk is broken")

// countedFS counts operations and open files, and makes one operation fail.
type countedFS struct {
	vfs.FS
	mu   sync.Mutex
	done int
	fail int // the operation that fails, from 1; 0: none
	open int
}

func (fs *countedFS) next() error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.done++; fs.done == fs.fail {
		return errBroken
	}
	return nil
}

func (fs *countedFS) file(open func() (vfs.File, error)) (vfs.File, error) {
	if err := fs.next(); err != nil {
		return nil, err
	}
	f, err := open()
	if err != nil {
		return nil, err
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.open++
	return &countedFile{File: f, fs: fs}, nil
}

func (fs *countedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return fs.file(func() (vfs.File, error) { return fs.FS.Create(name, category) })
}

func (fs *countedFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return fs.file(func() (vfs.File, error) { return fs.FS.OpenReadWrite(name, category, opts...) })
}

func (fs *countedFS) OpenDir(name string) (vfs.File, error) {
	return fs.file(func() (vfs.File, error) { return fs.FS.OpenDir(name) })
}

func (fs *countedFS) List(dir string) ([]string, error) {
	if err := fs.next(); err != nil {
		return nil, err
	}
	return fs.FS.List(dir)
}

func (fs *countedFS) Remove(name string) error {
	if err := fs.next(); err != nil {
		return err
	}
	return fs.FS.Remove(name)
}

func (fs *countedFS) Rename(from, to string) error {
	if err := fs.next(); err != nil {
		return err
	}
	return fs.FS.Rename(from, to)
}

type countedFile struct {
	vfs.File
	fs     *countedFS
	closed bool
}

// Close closes the file, even if it fails.
func (f *countedFile) Close() error {
	f.fs.mu.Lock()
	if !f.closed {
		f.fs.open--
	}
	f.closed = true
	f.fs.mu.Unlock()
	return errors.Join(f.fs.next(), f.File.Close())
}

func (f *countedFile) ReadAt(b []byte, at int64) (int, error) {
	if err := f.fs.next(); err != nil {
		return 0, err
	}
	return f.File.ReadAt(b, at)
}

func (f *countedFile) Write(b []byte) (int, error) {
	if err := f.fs.next(); err != nil {
		return 0, err
	}
	return f.File.Write(b)
}

func (f *countedFile) WriteAt(b []byte, at int64) (int, error) {
	if err := f.fs.next(); err != nil {
		return 0, err
	}
	return f.File.WriteAt(b, at)
}

func (f *countedFile) Stat() (vfs.FileInfo, error) {
	if err := f.fs.next(); err != nil {
		return nil, err
	}
	return f.File.Stat()
}

func (f *countedFile) Sync() error {
	if err := f.fs.next(); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *countedFile) SyncData() error {
	if err := f.fs.next(); err != nil {
		return err
	}
	return f.File.SyncData()
}

// crashed returns a log as left by a power loss, with an unfinished file and segments that may be useless. With seed 0 there is no log yet.
func crashed(t *testing.T, seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 7))
	w := newWorld(t, 20)
	if seed == 0 {
		return w
	}
	for range 3 {
		w.check(w.mustOpen())
		for range rng.IntN(80) {
			w.mustAdd(content(rng, rng.IntN(900)), rng.IntN(3) > 0)
		}
		synctest.Wait()
		w.losePower(rng.IntN(101), rng)
	}
	w.make(fileName(98) + ".new")
	return w
}

// make creates a small file.
func (w *world) make(name string) {
	w.t.Helper()
	f, err := w.mem.Create(w.dir+"/"+name, vfs.WriteCategoryUnspecified)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := f.Write([]byte("something")); err != nil {
		w.t.Fatal(err)
	}
	dir, err := w.mem.OpenDir(w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close(), dir.Sync(), dir.Close()); err != nil {
		w.t.Fatal(err)
	}
}

// use opens the log, appends to it, reads from it and closes it. It returns all errors that the log has reported.
func (w *world) use(rng *rand.Rand) error {
	got, err := w.open()
	if err != nil {
		return err
	}
	w.check(got)
	for range 40 {
		err = errors.Join(err, w.add(content(rng, rng.IntN(900)), rng.IntN(3) > 0))
		synctest.Wait() // until the next segment is ready
	}
	err = errors.Join(err, w.add(nil, true))
	if err == nil { // otherwise there may be no record
		_, err = w.log.Read(w.live[len(w.live)-1], 0)
	}
	err = errors.Join(err, w.log.Close(), w.failed)
	if w.failed == nil && err == nil {
		w.synced = len(w.records)
	}
	return err
}

// TestErrorAtAnyOperation: any single disk error, while a log is opened after a crash or later, is reported, no file
// stays open, and nothing is lost.
func TestErrorAtAnyOperation(t *testing.T) {
	for seed := range seeds(12) {
		synctest.Test(t, func(t *testing.T) {
			before := crashed(t, seed)
			for fail := 0; ; fail++ {
				w := before.clone()
				fs := &countedFS{FS: w.mem, fail: fail}
				w.fs = fs
				err := w.use(rand.New(rand.NewPCG(seed, 8)))
				failed := fail > 0 && fs.done >= fail
				if failed != errors.Is(err, errBroken) || !failed && err != nil {
					t.Errorf("seed %d, operation %d fails (%v): the log reported %v", seed, fail, failed, err)
				}
				if fs.open != 0 {
					t.Errorf("seed %d, operation %d fails: %d files are still open", seed, fail, fs.open)
				}
				w.fs, w.failed = nil, nil
				w.check(w.mustOpen())
				if fail%2 == 0 {
					w.mustAdd([]byte("more"), true)
				}
				w.losePower(0, nil) // what was once read must not be lost, even if it was not synced then
				w.check(w.mustOpen())
				w.close()
				if fail > 0 && !failed {
					return
				}
			}
		})
	}
}

// TestDirectory checks which files of a log exist while it is used, and their sizes.
func TestDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(4, 2))
		w := newWorld(t, 30)
		fs := &countedFS{FS: w.mem}
		w.fs = fs
		strangers := []string{"1.log", "0000000001.log.old", "00000000001.log", "4294967296.log", "notes"}
		for _, name := range strangers {
			w.make(name)
		}
		for round := range 5 {
			w.make(fileName(97) + ".new")
			w.check(w.mustOpen())
			for range 150 {
				size := rng.IntN(900)
				if rng.IntN(60) == 0 {
					size = 2 * testSegment
				}
				w.mustAdd(content(rng, size), true)
				synctest.Wait()
				w.checkDirectory(strangers)
			}
			if round == 2 {
				w.keep = 3 // most of what was needed no longer is
			}
			w.close()
			w.synced = len(w.records)
			if fs.open != 0 {
				t.Errorf("%d files are still open", fs.open)
			}
		}
	})
}

// TestReadKeepsItsFile: a file being read is not reused meanwhile, and is dropped afterwards.
func TestReadKeepsItsFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.fs = errorfs.Wrap(w.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileReadAt {
				time.Sleep(time.Second)
			}
			return nil
		}))
		w.mustOpen()
		w.mustAdd([]byte("first"), true)
		first := w.records[0]
		read := make(chan string, 1)
		go func() {
			b, err := w.log.Read(first.at, len(first.content))
			read <- fmt.Sprint(string(b), err)
		}()
		synctest.Wait()
		for range 100 {
			w.mustAdd(make([]byte, 1000), true)
			synctest.Wait()
		}
		if oldest, _ := w.log.Segments(); oldest != 1 {
			t.Errorf("the oldest segment is %d while segment 1 is read", oldest)
		}
		if got := <-read; got != "first<nil>" {
			t.Errorf("Read returned %q, want first and no error", got)
		}
		if oldest, newest := w.log.Segments(); newest-oldest > 1 {
			t.Errorf("after the read the segments are %d to %d", oldest, newest)
		}
		w.close()
	})
}

// TestCheckpointPrecedesRemoval: files are not dropped before the checkpoint that allows it is on disk.
func TestCheckpointPrecedesRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(6, 6))
		w := newWorld(t, 1)
		for range 200 {
			w.check(w.mustOpen())
			for range 1 + rng.IntN(16) {
				w.mustAdd(make([]byte, 1000), true)
			}
			at := w.live[len(w.live)-1]
			w.mustAdd(make([]byte, 1000), false) // may begin a segment
			if _, err := w.log.Read(at, 1000); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			w.losePower(0, rng)
		}
	})
}

// TestCloseWakesAppenders: a caller that waits for a new segment when the log is closed gets an error.
func TestCloseWakesAppenders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.fs = errorfs.Wrap(w.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpRename {
				time.Sleep(time.Minute)
			}
			return nil
		}))
		w.mustOpen()
		told := make(chan error, 1)
		go func() {
			var err error
			for err == nil {
				err = w.add(make([]byte, 1000), true)
			}
			told <- err
		}()
		synctest.Wait()
		w.close()
		if err := <-told; !errors.Is(err, ErrClosed) {
			t.Errorf("Append ended with %v, want %v", err, ErrClosed)
		}
	})
}

// TestCloseWaitsForWrites: Close returns once all records are on disk, also those that were appended during the last write.
func TestCloseWaitsForWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 10)
		var slow atomic.Bool
		w.fs = errorfs.Wrap(w.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileWriteAt && slow.Load() {
				time.Sleep(time.Second)
			}
			return nil
		}))
		for _, more := range []bool{true, false} {
			slow.Store(false)
			w.check(w.mustOpen())
			synctest.Wait() // until the next segment is ready
			slow.Store(true)
			added := make(chan bool)
			go func() {
				w.mustAdd([]byte("being written"), true)
				close(added)
			}()
			synctest.Wait()
			if more {
				w.mustAdd([]byte("to be written"), false)
			}
			w.close()
			<-added
			w.synced = len(w.records)
		}
		w.check(w.mustOpen())
		w.close()
	})
}

// lateFS delays what it reads by a second.
type lateFS struct{ vfs.FS }

func (fs lateFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := fs.FS.OpenReadWrite(name, category, opts...)
	return lateFile{f}, err
}

type lateFile struct{ vfs.File }

func (f lateFile) ReadAt(b []byte, at int64) (int, error) {
	defer time.Sleep(time.Second)
	return f.File.ReadAt(b, at)
}

// TestCloseDuringRead: a read that ends after Close leaves the files alone.
func TestCloseDuringRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.fs = lateFS{w.mem}
		w.mustOpen()
		w.mustAdd(make([]byte, 2*testSegment), true) // in a file that would be removed, not reused
		read := make(chan error, 1)
		go func() {
			_, err := w.log.Read(w.records[0].at, 2*testSegment)
			read <- err
		}()
		synctest.Wait()
		for range 30 {
			w.mustAdd(make([]byte, 1000), true)
			synctest.Wait()
		}
		w.close()
		if err := <-read; err != nil {
			t.Error(err)
		}
	})
}

// TestFailedIsCalledOnce: the next segment and the write of a record fail at the same time, or only the segment fails. One failure is
// reported, and nothing is appended or written after it.
func TestFailedIsCalledOnce(t *testing.T) {
	for writes, sync := range map[int]bool{0: false, 1: true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 100)
			broken, written, reports := false, 0, 0
			w.fs = errorfs.Wrap(w.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if !broken || op.Kind != errorfs.OpFileWriteAt && op.Kind != errorfs.OpRename {
					return nil
				}
				if op.Kind == errorfs.OpFileWriteAt {
					written++
				}
				time.Sleep(time.Second)
				return errBroken
			}))
			cfg := w.config()
			cfg.Failed = func(error) { reports++ }
			var err error
			if w.log, err = Open(cfg, func(LSN, []byte, bool) error { return nil }); err != nil {
				t.Fatal(err)
			}
			for w.log.nextAt()+recordSize(1000) <= testSegment {
				w.mustAdd(make([]byte, 1000), true)
			}
			synctest.Wait() // until the next segment is ready
			broken = true
			if err := w.add(make([]byte, 1000), sync); sync != errors.Is(err, errBroken) {
				t.Errorf("Append on a broken disk returned %v (sync: %v)", err, sync)
			}
			time.Sleep(2 * time.Second)
			if err := w.log.Append(8, sync, func(LSN, []byte) { t.Error("a record was added to a log that has failed") }); !errors.Is(err,
				errBroken) {
				t.Errorf("Append to a log that has failed returned %v", err)
			}
			if err := w.log.Close(); !errors.Is(err, errBroken) || reports != 1 || written != writes {
				t.Errorf("Close returned %v; %d failures were reported, want 1; %d writes, want %d", err, reports, written, writes)
			}
		})
	}
}

// TestSpareFiles: of the files that are no longer needed, a log keeps some.
func TestSpareFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := on(t, segmentFile(1), segmentFile(2), segmentFile(3), segmentFile(4), segmentFile(5).checkpoint(4<<32|segmentHead, 5),
			segmentFile(6))
		log, _ := opened(t, mem)
		synctest.Wait()
		if names, err := mem.List("/wal"); err != nil || len(names) != 2+maxFree {
			t.Errorf("the files are %q (%v), want segments 5 and 6 and %d to be reused", names, err, maxFree)
		}
		if _, err := log.Read(1<<32|segmentHead, 12); err == nil || !strings.Contains(err.Error(), "segment is gone") {
			t.Errorf("Read of a segment that is not needed returned %v", err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func (w *world) checkDirectory(strangers []string) {
	w.t.Helper()
	names, err := w.mem.List(w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	var bytes uint64
	var numbers []uint32
	for _, name := range names {
		if slices.Contains(strangers, name) {
			continue
		}
		var n uint32
		if _, err := fmt.Sscanf(name, "%d.log", &n); err != nil || name != fmt.Sprintf("%010d.log", n) {
			w.t.Fatalf("unexpected file %q", name)
		}
		info, err := w.mem.Stat(w.dir + "/" + name)
		if err != nil {
			w.t.Fatal(err)
		}
		if first, last := w.log.Segments(); (n < first || n > last) && info.Size() != testSegment {
			w.t.Errorf("segments %d to %d are needed, and spare file %d has %d bytes", first, last, n, info.Size())
		}
		bytes += uint64(info.Size())
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	if got := w.log.DiskBytes(); got != bytes {
		w.t.Errorf("the files have %d bytes, but DiskBytes reports %d", bytes, got)
	}
	first, last := w.log.Segments()
	for n := first; n <= last+1; n++ { // the needed ones, and the next one, which is ready
		if !slices.Contains(numbers, n) {
			w.t.Errorf("segments %d to %d are needed, but the files are %d", first, last, numbers)
		}
	}
	if free := len(numbers) - int(last-first) - 2; free > maxFree {
		w.t.Errorf("%d spare files: segments %d to %d of %d", free, first, last, numbers)
	}
}

// TestLargeBuffersAreDropped: half a second after a large write, a log has no large buffers. What is not yet written remains.
func TestLargeBuffersAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(5, 3))
		w := newWorld(t, 1000)
		var writing atomic.Int64 // how long a write takes, in nanoseconds
		w.fs = errorfs.Wrap(w.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileWriteAt {
				time.Sleep(time.Duration(writing.Load()))
			}
			return nil
		}))
		w.mustOpen()
		synctest.Wait() // until the next segment is ready
		for i := range 24 {
			w.mustAdd(content(rng, rng.IntN(900)), true)
			writing.Store(0)
			if i%3 == 0 {
				writing.Store(int64(dropAfter * 3 / 4)) // a buffer that is being written comes back later
				go w.mustAdd(content(rng, 2*idleBuffer), true)
				time.Sleep(dropAfter / 2)
				w.mustAdd(content(rng, idleBuffer), true)
			}
			w.mustAdd(content(rng, idleBuffer+rng.IntN(idleBuffer)), true)
			unwritten := 0
			if i%2 == 0 {
				unwritten = rng.IntN(2 * idleBuffer)
				w.mustAdd(content(rng, unwritten), false)
			}
			time.Sleep(dropAfter + time.Millisecond)
			w.log.mu.Lock()
			out, spare := cap(w.log.out), cap(w.log.spare)
			w.log.mu.Unlock()
			if out > max(idleBuffer, unwritten+2*blockSize) || spare > idleBuffer {
				t.Errorf("the buffers of an idle log have %d and %d bytes, with %d to be written; want at most %d", out, spare,
					unwritten, idleBuffer)
			}
		}
		writing.Store(0)
		for _, size := range []int{100, idleBuffer, 2 * maxBuffer} {
			w.mustAdd(content(rng, size), true)
			w.log.mu.Lock()
			kept := w.log.spare != nil
			w.log.mu.Unlock()
			if want := size <= maxBuffer; kept != want {
				t.Errorf("after a write of %d bytes, its buffer is kept: %v, want %v", size, kept, want)
			}
			time.Sleep(time.Second)
		}
		w.close()
		w.synced = len(w.records)
		w.check(w.mustOpen())
		w.close()
	})
}

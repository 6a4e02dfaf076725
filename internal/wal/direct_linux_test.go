package wal

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"golang.org/x/sys/unix"
)

// noDirectFS allows files to be switched to direct access, and then refuses to read them in blocks of 4 KiB, like a
// disk with larger blocks.
type noDirectFS struct{ vfs.FS }

func (fs noDirectFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := fs.FS.OpenReadWrite(name, category, opts...)
	return noDirectFile{f}, err
}

type noDirectFile struct{ vfs.File }

func (f noDirectFile) ReadAt(b []byte, at int64) (int, error) {
	if f.direct() {
		return 0, syscall.EINVAL
	}
	return f.File.ReadAt(b, at)
}

func (f noDirectFile) WriteAt(b []byte, at int64) (int, error) {
	if f.direct() {
		return 0, syscall.EINVAL
	}
	return f.File.WriteAt(b, at)
}

func (f noDirectFile) direct() bool {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	return err != nil || flags&unix.O_DIRECT != 0
}

func TestWithoutDirectWrites(t *testing.T) {
	w := newWorld(t, 30)
	w.fs, w.dir = noDirectFS{vfs.Default}, t.TempDir()
	for range 3 {
		w.check(w.mustOpen())
		for range 100 {
			w.mustAdd(make([]byte, 1000), true)
		}
		if w.log.last.direct != nil {
			t.Error("the segment has a file for direct writes although the disk refuses them")
		}
		w.close()
	}
}

// directFS counts writes of records, and how many of them use direct access.
type directFS struct {
	vfs.FS
	writes, direct *atomic.Int32
}

func (fs directFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := fs.FS.OpenReadWrite(name, category, opts...)
	return directFile{f, fs}, err
}

type directFile struct {
	vfs.File
	fs directFS
}

func (f directFile) WriteAt(b []byte, at int64) (int, error) {
	if at >= segmentHead {
		f.fs.writes.Add(1)
		if (noDirectFile{f.File}).direct() {
			f.fs.direct.Add(1)
		}
	}
	return f.File.WriteAt(b, at)
}

// directWorks reports whether a file in a directory can be opened and read with direct access.
func directWorks(t *testing.T, dir string) bool {
	t.Helper()
	path := filepath.Join(dir, "probe")
	if err := os.WriteFile(path, make([]byte, blockSize), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		return false
	}
	_, err = f.ReadAt(newBlocks(blockSize)[:blockSize], 0)
	if err := errors.Join(f.Close(), os.Remove(path)); err != nil {
		t.Fatal(err)
	}
	return err == nil
}

// TestErrorAtAnyOperationOfRealFiles: files of the operating system are opened twice. Whatever fails, none stays open.
func TestErrorAtAnyOperationOfRealFiles(t *testing.T) {
	for fail := 0; ; fail++ {
		w := newWorld(t, 30)
		fs := &countedFS{FS: vfs.Default, fail: fail}
		w.fs, w.dir = fs, t.TempDir()
		_, err := w.open()
		if err == nil {
			err = errors.Join(w.add([]byte("record"), true), w.log.Close())
		}
		if fs.open != 0 {
			t.Errorf("operation %d fails (%v): %d files are still open", fail, err, fs.open)
		}
		if fail > 0 && fs.done < fail {
			return
		}
	}
}

// TestDirectFileCannotBeOpened: a log is not opened if only one of a segment's two files can be opened.
func TestDirectFileCannotBeOpened(t *testing.T) {
	for fail := range int32(2) {
		var opened atomic.Int32
		w := newWorld(t, 30)
		w.dir = t.TempDir()
		w.fs = errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpOpen && opened.Add(1) == fail+1 {
				return errBroken
			}
			return nil
		}))
		if _, err := w.open(); !errors.Is(err, errBroken) {
			t.Errorf("open %d fails: Open returned %v after %d opens", fail+1, err, opened.Load())
		}
	}
}

// badFile has the descriptor of something else.
type badFile struct {
	vfs.File
	fd uintptr
}

func (f badFile) Fd() uintptr { return f.fd }

func TestSetDirectRefused(t *testing.T) {
	mem := on(t, segmentFile(1))
	f, err := mem.OpenReadWrite("/wal/"+fileName(1), vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for name, fd := range map[string]uintptr{"can't be read": 1 << 20, "can't be set": null.Fd()} {
		if setDirect(badFile{f, fd}) {
			t.Errorf("setDirect succeeded on a file whose flags %s", name)
		}
	}
}

// TestDirectWrites appends to files of the operating system from several goroutines, reads them, and reopens the log repeatedly.
func TestDirectWrites(t *testing.T) {
	w := newWorld(t, 30)
	var writes, direct atomic.Int32
	w.fs, w.dir = directFS{vfs.Default, &writes, &direct}, t.TempDir()
	for round := range uint64(5) {
		w.check(w.mustOpen())
		if w.log.last.direct == nil {
			if directWorks(t, w.dir) {
				t.Fatal("the file system of the test's directory supports direct writes, but the log does not use them")
			}
			t.Skip("the file system of the test's directory does not support direct writes")
		}
		var callers sync.WaitGroup
		for caller := range uint64(4) {
			callers.Go(func() {
				rng := rand.New(rand.NewPCG(round, caller))
				for range 30 {
					if err := w.add(content(rng, rng.IntN(2*blockSize)), rng.IntN(3) > 0); err != nil {
						t.Error(err)
					}
				}
			})
		}
		callers.Wait()
		w.mustAdd([]byte("the last one"), true)
		if w.log.last.direct == nil {
			t.Error("a later segment does not use direct writes")
		}
		for _, p := range w.records[len(w.records)-30:] {
			if got, err := w.log.Read(p.at, len(p.content)); err != nil || string(got) != string(p.content) {
				t.Fatalf("record %s of %d bytes: read %d bytes, %v", p.at, len(p.content), len(got), err)
			}
		}
		w.close()
	}
	if writes.Load() == 0 || writes.Load() != direct.Load() {
		t.Errorf("%d of %d writes bypassed the page cache", direct.Load(), writes.Load())
	}
}

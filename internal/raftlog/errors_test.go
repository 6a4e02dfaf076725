package raftlog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

var errDisk = &os.PathError{Op: "use", Path: "a file", Err: syscall.EIO}

// countedFS counts operations and open files, and makes one operation fail.
type countedFS struct {
	vfs.FS // fails
	mu     sync.Mutex
	done   int
	fail   int    // the operation that fails, from 1; 0: none
	failed string // its kind and path
	open   int
}

func newCountedFS(mem vfs.FS, fail int) *countedFS {
	fs := &countedFS{fail: fail}
	fs.FS = errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		fs.mu.Lock()
		defer fs.mu.Unlock()
		if op.Kind == errorfs.OpStat && fs.done > 0 { // after the first: a directory that can't be looked at is made
			return nil
		}
		if fs.done++; fs.done == fs.fail {
			fs.failed = fmt.Sprint(op.Kind, " ", op.Path)
			return errDisk
		}
		return nil
	}))
	return fs
}

func (fs *countedFS) opened(n int) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.open += n
}

func (fs *countedFS) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	fs.opened(1)
	return countedFile{f, fs}, nil
}

func (fs *countedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return fs.file(fs.FS.Create(name, category))
}

func (fs *countedFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	return fs.file(fs.FS.Open(name, opts...))
}

func (fs *countedFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return fs.file(fs.FS.OpenReadWrite(name, category, opts...))
}

func (fs *countedFS) OpenDir(name string) (vfs.File, error) { return fs.file(fs.FS.OpenDir(name)) }

func (fs *countedFS) Lock(name string) (io.Closer, error) {
	lock, err := fs.FS.Lock(name)
	if err != nil {
		return nil, err
	}
	fs.opened(1)
	return countedLock{lock, fs}, nil
}

type countedFile struct {
	vfs.File
	fs *countedFS
}

func (f countedFile) Close() error {
	f.fs.opened(-1)
	return f.File.Close()
}

type countedLock struct {
	io.Closer
	fs *countedFS
}

func (l countedLock) Close() error {
	l.fs.opened(-1)
	return l.Closer.Close()
}

// use opens logs, does something of everything and closes them. It returns all errors, and those that the logs have reported.
func use(cfg Config) (err error) {
	var reported error
	cfg.Fatal = func(err error) { reported = errors.Join(reported, err) }
	log, err := Open(cfg)
	if err != nil {
		return err
	}
	do := func(step func() error) {
		if err == nil {
			err = step()
		}
		synctest.Wait() // until segments are ready, and the marks are written
	}
	var s *ShardLog
	do(func() error { s, err = log.Shard(7, Start{}); return err })
	do(func() error { return s.Save(aHardState(4, 1, 0), entries(4, 1, 9)) })
	do(func() error { return s.Compact(3) })
	do(func() error { _, err := s.Entries(4, 7, 1<<20); return err })
	do(func() error { return log.Create(8) })
	do(func() error { s, err = log.Shard(8, Start{Index: 5, Term: 1}); return err })
	do(func() error { return s.Reset(9, 2) })
	do(func() error { return log.Remove(9) })
	return errors.Join(err, log.Close(), reported)
}

// TestErrorAtAnyOperation: any single disk error is reported, no file stays open, and nothing is lost that was saved before.
func TestErrorAtAnyOperation(t *testing.T) {
	whole := newDisk(t)
	save(t, whole.openShard(Start{}), aHardState(3, 1, 0), entries(3, 1, 5))
	if _, err := whole.log.Shard(9, Start{Index: 1, Term: 1}); err != nil {
		t.Fatal(err)
	}
	whole.close()
	for name, c := range map[string]struct {
		spoil  func(d *disk) error
		accept bool
		seen   int // operations at least
	}{
		"new":           {func(d *disk) error { return d.mem.RemoveAll("/data") }, false, 40},
		"whole":         {func(*disk) error { return nil }, false, 30},
		"without marks": {func(d *disk) error { return d.mem.Remove("/data/raft/marks") }, true, 40},
	} {
		for fail := 1; ; fail++ {
			var done bool
			synctest.Test(t, func(t *testing.T) {
				d := whole.copy()
				if err := c.spoil(d); err != nil {
					t.Fatal(err)
				}
				fs := newCountedFS(d.mem, fail)
				cfg := d.config()
				cfg.FS, cfg.AcceptDataLoss = fs, c.accept
				err := use(cfg)
				failed := fs.done >= fail
				if failed != errors.Is(err, syscall.EIO) || !failed && err != nil {
					t.Errorf("%s: operation %d of %q fails: %v; the logs returned %v", name, fail, fs.failed, failed, err)
				}
				if fs.open != 0 {
					t.Errorf("%s: operation %d of %q fails: %d files are still open", name, fail, fs.failed, fs.open)
				}
				done = !failed
			})
			if done {
				if fail < c.seen {
					t.Errorf("%s: only %d operations were seen", name, fail)
				}
				break
			}
		}
	}
}

package wal

import (
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// noDirectFS lets files be switched to direct access, and then refuses to read them in blocks of 4 KiB, as a disk with larger ones does.
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
		w.close()
	}
}

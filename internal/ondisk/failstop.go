package ondisk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FailStop is a file system that ends all writing at the first write that fails, as a crash would. That write and all later ones
// seem to succeed, but do nothing; Err returns what has happened, and whoever uses the file system must ask for it before
// anything counts as done. Pebble needs this: when it can't write it tries again forever, which blocks its callers, or exits.
//
// Reads return their errors, and find nothing of what was not written. A missing file is not a failed write.
type FailStop struct {
	vfs.FS
	err atomic.Pointer[error]
}

// NewFailStop returns a file system that writes to another until a write fails. It returns a FailStop as it is: another one on top would
// not notice that its writes are dropped.
func NewFailStop(on vfs.FS) *FailStop {
	if s, ok := on.(*FailStop); ok {
		return s
	}
	return &FailStop{FS: on}
}

// Err returns the first failure, with the path.
func (s *FailStop) Err() error {
	if err := s.err.Load(); err != nil {
		return *err
	}
	return nil
}

// do runs a write. It returns only errors that are not failures to write.
func (s *FailStop) do(op, path string, write func() error) error {
	if s.err.Load() != nil {
		return nil
	}
	err := write()
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
		return err
	}
	var cause syscall.Errno
	if errors.As(err, &cause) {
		err = cause // without another path
	}
	err = fmt.Errorf("%s %q: %w", op, path, err)
	s.err.CompareAndSwap(nil, &err)
	return nil
}

// open opens a file that may be written.
func (s *FailStop) open(op, path string, open func() (vfs.File, error)) (vfs.File, error) {
	var f vfs.File
	err := s.do(op, path, func() (err error) {
		f, err = open()
		return err
	})
	if err != nil {
		return nil, err
	}
	if s.err.Load() != nil {
		if f != nil { // it was opened while another write failed
			_ = f.Close()
		}
		f = vfs.NewMemFile(nil)
	}
	return &failStopFile{f, path, s}, nil
}

// Create implements vfs.FS.
func (s *FailStop) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return s.open("create", name, func() (vfs.File, error) { return s.FS.Create(name, c) })
}

// OpenReadWrite implements vfs.FS.
func (s *FailStop) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return s.open("open", name, func() (vfs.File, error) { return s.FS.OpenReadWrite(name, c, opts...) })
}

// ReuseForWrite implements vfs.FS.
func (s *FailStop) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return s.open("reuse", newname, func() (vfs.File, error) { return s.FS.ReuseForWrite(oldname, newname, c) })
}

// OpenDir implements vfs.FS.
func (s *FailStop) OpenDir(name string) (vfs.File, error) {
	return s.open("open", name, func() (vfs.File, error) { return s.FS.OpenDir(name) })
}

// Link implements vfs.FS.
func (s *FailStop) Link(oldname, newname string) error {
	return s.do("link", newname, func() error { return s.FS.Link(oldname, newname) })
}

// Remove implements vfs.FS.
func (s *FailStop) Remove(name string) error {
	return s.do("remove", name, func() error { return s.FS.Remove(name) })
}

// RemoveAll implements vfs.FS.
func (s *FailStop) RemoveAll(name string) error {
	return s.do("remove", name, func() error { return s.FS.RemoveAll(name) })
}

// Rename implements vfs.FS.
func (s *FailStop) Rename(oldname, newname string) error {
	return s.do("rename", oldname, func() error { return s.FS.Rename(oldname, newname) })
}

// MkdirAll implements vfs.FS.
func (s *FailStop) MkdirAll(dir string, perm os.FileMode) error {
	return s.do("make directory", dir, func() error { return s.FS.MkdirAll(dir, perm) })
}

// Unwrap implements vfs.FS.
func (s *FailStop) Unwrap() vfs.FS { return s.FS }

// failStopFile is a file of a FailStop. After a failure it may be an empty one in memory.
type failStopFile struct {
	vfs.File
	path string
	fs   *FailStop
}

// Write implements vfs.File.
func (f *failStopFile) Write(p []byte) (int, error) {
	return len(p), f.fs.do("write", f.path, func() error { _, err := f.File.Write(p); return err })
}

// WriteAt implements vfs.File.
func (f *failStopFile) WriteAt(p []byte, at int64) (int, error) {
	return len(p), f.fs.do("write", f.path, func() error { _, err := f.File.WriteAt(p, at); return err })
}

// Sync implements vfs.File.
func (f *failStopFile) Sync() error { return f.fs.do("sync", f.path, f.File.Sync) }

// SyncData implements vfs.File.
func (f *failStopFile) SyncData() error { return f.fs.do("sync", f.path, f.File.SyncData) }

// SyncTo implements vfs.File.
func (f *failStopFile) SyncTo(length int64) (full bool, err error) {
	full = true
	err = f.fs.do("sync", f.path, func() (err error) { full, err = f.File.SyncTo(length); return err })
	return full, err
}

// Close implements vfs.File.
func (f *failStopFile) Close() error {
	err := f.File.Close()
	return f.fs.do("close", f.path, func() error { return err })
}

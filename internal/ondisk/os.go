package ondisk

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// OS is the operating system's file system. Only the owner may read and write files that are created in it, regardless of the umask and of
// who may enter the directory.
var OS vfs.FS = private{vfs.Default}

type private struct{ vfs.FS }

// Create implements vfs.FS.
func (p private) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	for {
		err := create(name)
		if err == nil {
			return p.FS.OpenReadWrite(name, c)
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) { // another link to the file keeps its contents
			return nil, err
		}
	}
}

// OpenReadWrite implements vfs.FS.
func (p private) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	if err := create(name); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return p.FS.OpenReadWrite(name, c, opts...)
}

// Lock implements vfs.FS.
func (p private) Lock(name string) (io.Closer, error) {
	if err := create(name); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return p.FS.Lock(name)
}

// Unwrap implements vfs.FS.
func (p private) Unwrap() vfs.FS { return p.FS }

// create creates an empty file, so that package vfs only opens it and does not choose its mode. It does not open an existing file: closing
// one that this process has locked would unlock it.
func create(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

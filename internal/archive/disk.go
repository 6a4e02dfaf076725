package archive

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"
)

// disk is the directory of an archive. Tests use one in memory that fails and loses power.
type disk interface {
	// Create creates a new file. Its name survives a power loss once Sync has returned.
	Create(name string) (file, error)
	// Append opens a file to append to it.
	Append(name string) (file, error)
	List() (names []string, err error)
	Stat(name string) (size int64, written time.Time, err error)
	Remove(name string) error
	Sync() error
	Close() error
}

// file is open for appending.
type file interface {
	io.WriteCloser
	Sync() error
}

// osDisk is a directory of the operating system. Names with ".." can't escape it.
type osDisk struct{ *os.Root }

func openDisk(dir string) (disk, error) {
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return osDisk{root}, nil
}

// makeDir creates a directory if it doesn't exist, so that its name survives a power loss.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncDir(os.Open(filepath.Dir(dir)))
}

type syncer interface {
	Sync() error
	Close() error
}

// syncDir syncs and closes a directory that was opened.
func syncDir[F syncer](d F, err error) error {
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (d osDisk) Create(name string) (file, error) {
	return d.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
}

func (d osDisk) Append(name string) (file, error) {
	return d.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
}

func (d osDisk) Stat(name string) (size int64, written time.Time, err error) {
	info, err := d.Root.Stat(name)
	if err != nil {
		return 0, time.Time{}, err
	}
	return info.Size(), info.ModTime(), nil
}

func (d osDisk) List() ([]string, error) {
	dir, err := d.Root.Open(".")
	if err != nil {
		return nil, err
	}
	names, err := dir.Readdirnames(-1)
	return names, errors.Join(err, dir.Close())
}

func (d osDisk) Sync() error { return syncDir(d.Root.Open(".")) }

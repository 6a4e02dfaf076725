package ondisk

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Overlay is a file system that shows a directory of another one, and keeps in memory whatever is changed in it, so that a program
// can be run to its end and leave no trace. Nobody may change the directory meanwhile.
//
// It is a file system in memory in which a large file is at first represented by a stub: it is read from the directory, and
// copied when it is first written to. Since a stub is a file, it can be renamed, linked and removed like one.
type Overlay struct {
	*vfs.MemFS
	below vfs.FS
	files []string // below
	stub  [16]byte // begins a stub; an index into files follows
}

// stubLen is the length of a stub. Shorter files are copied at once.
const stubLen = 16 + 4

// NewOverlay returns a file system with the contents of a directory.
func NewOverlay(below vfs.FS, dir string) (*Overlay, error) {
	o := &Overlay{MemFS: vfs.NewMem(), below: below}
	_, _ = rand.Read(o.stub[:])
	if _, err := below.Stat(dir); err != nil {
		return nil, err
	}
	return o, o.add(dir)
}

// add shows a directory.
func (o *Overlay) add(dir string) error {
	if err := o.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	names, err := o.below.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		path := o.below.PathJoin(dir, name)
		info, err := o.below.Stat(path)
		switch {
		case err != nil:
		case info.IsDir():
			err = o.add(path)
		default:
			err = o.addFile(path, info.Size())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (o *Overlay) addFile(path string, size int64) error {
	if size < stubLen {
		return vfs.CopyAcrossFS(o.below, path, o.MemFS, path)
	}
	f, err := o.MemFS.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(binary.BigEndian.AppendUint32(o.stub[:len(o.stub):len(o.stub)], uint32(len(o.files))))
	o.files = append(o.files, path)
	return errors.Join(err, f.Close())
}

// original returns the path of the file below that an open file is a stub of.
func (o *Overlay) original(f vfs.File) (path string, ok bool) {
	var b [stubLen]byte
	if n, _ := f.ReadAt(b[:], 0); n < stubLen || [16]byte(b[:]) != o.stub {
		return "", false
	}
	return o.files[binary.BigEndian.Uint32(b[16:])], true
}

// open opens the file below if what was opened in memory is a stub.
func (o *Overlay) open(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	path, ok := o.original(f)
	if !ok {
		return f, nil
	}
	below, err := o.below.Open(path)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &overlayFile{File: f, below: below, fs: o}, nil
}

// Open implements vfs.FS.
func (o *Overlay) Open(name string, _ ...vfs.OpenOption) (vfs.File, error) {
	return o.open(o.MemFS.Open(name))
}

// OpenReadWrite implements vfs.FS.
func (o *Overlay) OpenReadWrite(name string, c vfs.DiskWriteCategory, _ ...vfs.OpenOption) (vfs.File, error) {
	return o.open(o.MemFS.OpenReadWrite(name, c))
}

// ReuseForWrite implements vfs.FS.
func (o *Overlay) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := o.Rename(oldname, newname); err != nil {
		return nil, err
	}
	return o.OpenReadWrite(newname, c)
}

// Stat implements vfs.FS.
func (o *Overlay) Stat(name string) (vfs.FileInfo, error) {
	f, err := o.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Stat()
}

// overlayFile is an open stub, until it is written to, here or through another overlayFile.
type overlayFile struct {
	vfs.File // in memory
	below    vfs.File
	fs       *Overlay
}

// content returns the file that has the content.
func (f *overlayFile) content() vfs.File {
	if _, stub := f.fs.original(f.File); stub {
		return f.below
	}
	return f.File
}

// copy makes the file one in memory.
func (f *overlayFile) copy() error {
	if f.content() != f.below {
		return nil
	}
	info, err := f.below.Stat()
	if err != nil {
		return err
	}
	b := make([]byte, info.Size())
	if _, err := f.below.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	_, err = f.File.WriteAt(b, 0)
	return err
}

// Read implements vfs.File.
func (f *overlayFile) Read(p []byte) (int, error) { return f.content().Read(p) }

// ReadAt implements vfs.File.
func (f *overlayFile) ReadAt(p []byte, at int64) (int, error) { return f.content().ReadAt(p, at) }

// Stat implements vfs.File.
func (f *overlayFile) Stat() (vfs.FileInfo, error) { return f.content().Stat() }

// WriteAt implements vfs.File.
func (f *overlayFile) WriteAt(p []byte, at int64) (int, error) {
	if err := f.copy(); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, at)
}

// Write implements vfs.File.
func (f *overlayFile) Write(p []byte) (int, error) {
	if err := f.copy(); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

// Close implements vfs.File.
func (f *overlayFile) Close() error { return errors.Join(f.File.Close(), f.below.Close()) }

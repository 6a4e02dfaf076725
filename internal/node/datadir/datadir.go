// Package datadir is a node's data directory: whose it is, which replicas it holds, the names in it, and what is known to be damaged.
// It does not know what the replicas hold, nor other nodes.
package datadir

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/ondisk"
)

// Names in the directory.
const (
	LogDir    = "raft"        // the Raft logs
	MapFile   = "cluster.map" // the map of the cluster as this node last knew it: where the others are, after a restart
	StatsFile = "stats"       // saved statistics
	LockFile  = "LOCK"
	// WitnessFile has how far the replicas of other nodes have come.
	WitnessFile = "reached"
	// RestoringFile marks a directory in which a restore has begun but not completed.
	RestoringFile = "RESTORING"
)

// MaxShards is the maximum number of data shards.
const MaxShards = 64

// Dir is a node's data directory.
type Dir struct {
	FS             vfs.FS // that Path is in
	Path           string
	InMemory       bool // nothing is kept here but the archive
	AcceptDataLoss bool // a damaged log may be opened
	Identity       *IdentityStore
	Logger         *slog.Logger
}

// File returns the path of a name in the directory.
func (d *Dir) File(name string) string {
	if d.InMemory {
		return name
	}
	return d.FS.PathJoin(d.Path, name)
}

// Lock makes this process the only user of a data directory, until the file is closed.
func Lock(fs vfs.FS, dir string) (io.Closer, error) {
	f, err := fs.OpenReadWrite(fs.PathJoin(dir, LockFile), vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	return hold(f, dir)
}

// LockUnchanged is Lock for a process that only reads the directory: it does not even create the file. Where there is none, no
// process ever used the directory.
func LockUnchanged(fs vfs.FS, dir string) (io.Closer, error) {
	f, err := fs.Open(fs.PathJoin(dir, LockFile))
	if errors.Is(err, os.ErrNotExist) {
		return io.NopCloser(nil), nil
	}
	if err != nil {
		return nil, err
	}
	return hold(f, dir)
}

// hold locks an open file.
func hold(f vfs.File, dir string) (io.Closer, error) {
	if fd := f.Fd(); fd != vfs.InvalidFd { // otherwise it is in this process's memory
		if err := syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("%s is in use by another process", dir)
		}
	}
	return f, nil
}

// StateDir returns the directory of a replica's state. The first replica of a shard has the plain name.
func StateDir(shard uint32, replica uint64) string {
	if incarnation := replica >> 32; incarnation > 0 {
		return fmt.Sprintf("shard-%04d-%d", shard, incarnation)
	}
	return fmt.Sprintf("shard-%04d", shard)
}

// MustNotBeRestoring refuses a directory that holds a partly restored node.
func MustNotBeRestoring(fs vfs.FS, dir string) error {
	restoring, err := Restoring(fs, dir)
	if restoring {
		return fmt.Errorf("a restore into %s did not finish: repeat `pawl restore`, which starts over", dir)
	}
	return err
}

// Restoring reports whether a directory holds a partly restored node.
func Restoring(fs vfs.FS, dir string) (bool, error) {
	_, err := fs.Stat(fs.PathJoin(dir, RestoringFile))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// ReplaceFile writes a file atomically and durably.
func ReplaceFile(fs vfs.FS, path string, text []byte) error {
	f, err := fs.Create(path+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := fs.Rename(path+".new", path); err != nil {
		return err
	}
	return ondisk.SyncDir(fs, fs.PathDir(path))
}

// ReadFile returns the contents of a file.
func ReadFile(fs vfs.FS, path string) ([]byte, error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(f)
	return text, errors.Join(err, f.Close())
}

package raftlog

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"

	"github.com/pawlq/pawl/internal/ondisk"
)

// findDamage returns the first damaged place in the write-ahead logs of a store, or nil if they are sound.
func findDamage(fs vfs.FS, dir string) *ondisk.DamageError {
	logs, err := wal.Scan(wal.Dir{FS: fs, Dirname: dir})
	if err != nil {
		return nil
	}
	for i, ll := range logs {
		good, err := readWAL(ll)
		if errors.Is(err, record.ErrUnexpectedEOF) && i == len(logs)-1 {
			continue // a torn tail is not damage
		}
		if err != nil {
			_, path := ll.SegmentLocation(0)
			size, _ := ll.PhysicalSize() // for the message only
			return &ondisk.DamageError{What: "log", File: path, From: good, To: int64(size), Reason: err.Error()}
		}
	}
	return nil
}

// readWAL returns how many bytes of a write-ahead log are sound. A nil error says that it ends as it should.
func readWAL(ll wal.LogicalLog) (good int64, err error) {
	r := ll.OpenForRead()
	defer r.Close()
	for {
		rec, at, err := r.NextRecord()
		if err == nil {
			_, err = io.Copy(io.Discard, rec)
		}
		if errors.Is(err, io.EOF) {
			return at.Physical, nil
		}
		if err != nil {
			return at.Physical, err
		}
	}
}

// salvage opens what can be read of a store that Pebble refuses or can't read: without its write-ahead log from the
// damage on, or else nothing, so that each shard goes on from its state. The damaged files stay beside it.
func (l *Log) salvage(cause error) error {
	l.giveUp(cause)
	if err := l.setAside(); err != nil {
		return err
	}
	damage := findDamage(l.cfg.FS, l.path())
	if damage == nil {
		return l.startOver()
	}
	l.drop()
	if err := l.cutWAL(damage); err != nil {
		return err
	}
	err := l.openPebble()
	if err == nil {
		err = l.readAll()
	}
	if err == nil {
		return nil
	}
	l.giveUp(err)
	return l.startOver()
}

// drop closes a store whose files are about to go: what it says to that is of no use.
func (l *Log) drop() {
	if l.db != nil {
		_ = l.db.Close()
		l.db = nil
	}
	l.failed.Store(nil)
}

// startOver replaces the store by an empty one.
func (l *Log) startOver() error {
	l.drop()
	l.cfg.Logger.Error("log given up; each shard goes on from its state", "dir", l.cfg.Dir)
	if err := l.cfg.FS.RemoveAll(l.path()); err != nil {
		return err
	}
	if err := ondisk.MakeDir(l.cfg.FS, l.path()); err != nil {
		return err
	}
	if err := l.openPebble(); err != nil {
		return err
	}
	if err := l.db.Close(); err != nil {
		return err
	}
	return l.openPebble()
}

// setAside copies the store to a new directory, for whoever wants to look for more than we could read.
func (l *Log) setAside() error {
	l.drop()
	for n := 1; ; n++ {
		to := fmt.Sprintf("%s.damaged-%d", l.path(), n)
		if _, err := l.cfg.FS.Stat(to); err == nil {
			continue
		}
		_, err := vfs.Clone(l.cfg.FS, l.cfg.FS, l.path(), to, vfs.CloneSync)
		l.cfg.Logger.Error("damaged log set aside", "dir", l.cfg.Dir, "to", to)
		return err
	}
}

// cutWAL ends the write-ahead log before the damage and removes those after it: Pebble takes it for a torn tail.
func (l *Log) cutWAL(damage *ondisk.DamageError) error {
	fs := l.cfg.FS
	tmp := damage.File + ".new"
	if err := copyPrefix(fs, damage.File, tmp, damage.From); err != nil {
		return err
	}
	if err := fs.Rename(tmp, damage.File); err != nil {
		return err
	}
	logs, err := wal.Scan(wal.Dir{FS: fs, Dirname: l.path()})
	if err != nil {
		return err
	}
	for later := false; len(logs) > 0; logs = logs[1:] {
		_, path := logs[0].SegmentLocation(0)
		if later {
			if err := fs.Remove(path); err != nil {
				return err
			}
		}
		later = later || path == damage.File
	}
	return ondisk.SyncDir(fs, l.path())
}

func copyPrefix(fs vfs.FS, from, to string, n int64) error {
	in, err := fs.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := fs.Create(to, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.NewSectionReader(in, 0, n))
	return errors.Join(err, out.Sync(), out.Close())
}

package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/ondisk"
)

// staging is the directories in which a state that comes from an image waits to replace the state in target.
type staging struct {
	fs     vfs.FS
	target string
}

// dir returns the directory in which the new state is written.
func (g staging) dir() string { return g.target + ".staged" }

// ready returns the directory of a new state that will replace the old one, whatever happens.
func (g staging) ready() string { return g.target + ".ready" }

// discard deletes a new state that is not ready.
func (g staging) discard() error { return g.fs.RemoveAll(g.dir()) }

// replace replaces the old state by the new one.
func (g staging) replace() error {
	if err := g.fs.Rename(g.dir(), g.ready()); err != nil {
		return err
	}
	if err := ondisk.SyncDir(g.fs, g.fs.PathDir(g.target)); err != nil {
		return err
	}
	return g.finish()
}

// finish replaces the old state by one that is ready, if there is one, and discards one that was being written.
func (g staging) finish() error {
	if err := g.discard(); err != nil {
		return err
	}
	if _, err := g.fs.Stat(g.ready()); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if err := g.fs.RemoveAll(g.target); err != nil {
		return err
	}
	if err := g.fs.Rename(g.ready(), g.target); err != nil {
		return err
	}
	return ondisk.SyncDir(g.fs, g.fs.PathDir(g.target))
}

// Stage writes an image into a store next to this one, and returns its position. Switch replaces this store by it. Stage first
// discards an earlier staged state. If it fails, even because the disk is full, this store is unchanged. It may run concurrently with
// anything except another Stage, Switch or Close.
func (s *Store) Stage(r io.Reader) (Position, error) {
	pos, err := s.stage(r)
	if err != nil {
		return Position{}, errors.Join(fmt.Errorf("stage a state next to %q: %w", s.cfg.Dir, err), s.Unstage())
	}
	return pos, nil
}

func (s *Store) stage(r io.Reader) (pos Position, err error) {
	if err := s.Unstage(); err != nil {
		return pos, err
	}
	ir := &imageReader{r: r}
	head, err := ir.head()
	if err != nil {
		return pos, err
	}
	if id := s.cfg.Identity; head.Cluster != id.Cluster || head.Shard != id.Shard {
		return pos, fmt.Errorf("%w: the image is of cluster %x, shard %d; expected cluster %x, shard %d", ErrIdentity,
			head.Cluster, head.Shard, id.Cluster, id.Shard)
	}
	disk := ondisk.NewFailStop(s.cfg.FS)
	staged := &Store{cfg: s.cfg}
	staged.cfg.Dir, staged.cfg.FS, staged.cfg.MustExist, staged.cfg.Fatal = s.staging.dir(), disk, false, nil // a failure ends this alone
	err = staged.open()
	if err == nil {
		rows := imageRows{staged.db, disk}
		if err = ir.each(rows.put); err == nil {
			err = rows.finish(head)
		}
		err = errors.Join(err, staged.begin(), staged.db.Close())
	}
	if failed := disk.Err(); failed != nil {
		err = failed
	}
	return head.Position, err
}

// imageRows writes the rows of an image into a new state.
type imageRows struct {
	db   *pebble.DB
	disk *ondisk.FailStop
}

func (r imageRows) put(rows [][2][]byte) error {
	if err := r.disk.Err(); err != nil {
		return err
	}
	b := r.db.NewBatch()
	defer b.Close()
	for _, row := range rows {
		if err := b.Set(row[0], row[1], nil); err != nil {
			return err
		}
	}
	return r.db.Apply(b, pebble.NoSync)
}

// finish writes the store's own rows last: without them it is not a state.
func (r imageRows) finish(h ImageHead) error {
	b := r.db.NewBatch()
	defer b.Close()
	for _, row := range [][2][]byte{
		{epochKey, encodeEpoch(h.Epoch)}, {installedKey, {rowVersion}}, {positionKey, encodePosition(h.Position)},
	} {
		if err := b.Set(row[0], row[1], nil); err != nil {
			return err
		}
	}
	return errors.Join(r.db.Apply(b, pebble.NoSync), r.db.Flush())
}

// Unstage discards a staged state.
func (s *Store) Unstage() error { return s.staging.discard() }

// Switch closes this state and replaces it by the staged one, which it opens. Nobody may use the store meanwhile, nor hold a
// Snapshot. If it fails, the store may only be closed. Once the staged directory has its new name, an Open after a crash completes
// the switch.
//
// From then on, Installed reports that the log must start over.
func (s *Store) Switch() error {
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("state in %q: %w", s.cfg.Dir, err)
	}
	s.closed = true
	err := s.staging.replace()
	if err == nil {
		err = s.open()
	}
	if err != nil {
		return fmt.Errorf("state in %q: switch to the staged one: %w", s.cfg.Dir, err)
	}
	s.closed = false
	return nil
}

// Installed reports whether this state came from an image and its log has not started over since.
func (s *Store) Installed() bool {
	_, ok := s.Get(installedKey)
	return ok
}

// ClearInstalled durably records that the log has started over.
func (s *Store) ClearInstalled() error {
	return errors.Join(s.db.Delete(installedKey, pebble.NoSync), s.db.Flush())
}

package store

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/ondisk"
)

// Peek opens the state that Open would open, lets look read it, and changes nothing on disk, even if something is damaged. It reports
// whether there is a state; if not, look is not called.
func Peek(cfg Config, look func(*Store) error) (found bool, err error) {
	s := newStore(cfg)
	s.readOnly, s.cfg.FS = true, withoutOptions{s.cfg.FS}
	if _, err := s.cfg.FS.Stat(s.staging.ready()); err == nil {
		s.cfg.Dir = s.staging.ready()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if found, err = s.exists(); err == nil && found {
		err = s.open()
	}
	if err != nil || !found {
		return false, s.openError(err)
	}
	return true, s.openError(s.look(look))
}

// exists reports whether there is a state. It refuses a directory that has lost one.
func (s *Store) exists() (bool, error) {
	if _, err := s.cfg.FS.Stat(s.cfg.Dir); errors.Is(err, fs.ErrNotExist) {
		if s.cfg.MustExist {
			return false, s.LostError("it is missing")
		}
		return false, nil
	}
	listed, err := s.checkFiles()
	return listed != "", err
}

// look calls look and closes the store. What can't be read is an error.
func (s *Store) look(look func(*Store) error) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case *Failure:
			err = s.damage(p.Err)
		default:
			panic(p)
		}
		err = errors.Join(err, s.db.Close())
	}()
	return look(s)
}

// withoutOptions hides the options that Pebble recorded, which Open removes: they may be damaged.
type withoutOptions struct{ vfs.FS }

// List implements vfs.FS.
func (w withoutOptions) List(dir string) ([]string, error) {
	names, err := w.FS.List(dir)
	return slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, ondisk.OptionsPrefix) }), err
}

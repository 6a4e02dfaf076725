package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/ondisk"
)

const (
	// damagedPrefix begins the names of directories that keep damaged data. Only the operator deletes them.
	damagedPrefix = "damaged-"
	// DamageFile records damage found while the node ran, for its next start, which might otherwise open everything and run until
	// it hits the same damage.
	DamageFile = "DAMAGED"
)

// SetAside moves everything but the archive out of the way, and makes the directory that of the new number. The identity goes
// first: a start that finds the new one moves the rest.
func (d *Dir) SetAside(of string, number uint32) error {
	to, err := makeAside(d.FS, d.Path)
	if err != nil {
		return err
	}
	if err := d.Identity.Join(of, number, d.FS.PathBase(to)); err != nil {
		return err
	}
	return d.FinishAside()
}

// makeAside creates a directory for damaged data, with a copy of the identity.
func makeAside(fs vfs.FS, dir string) (to string, err error) {
	for i := 1; ; i++ {
		to = fs.PathJoin(dir, fmt.Sprintf("%s%d", damagedPrefix, i))
		if _, err := fs.Stat(to); errors.Is(err, os.ErrNotExist) {
			break
		} else if err != nil {
			return to, err
		}
	}
	if err := fs.MkdirAll(to, 0o700); err != nil {
		return to, err
	}
	text, err := ReadFile(fs, fs.PathJoin(dir, IdentityFile))
	if err == nil {
		err = ReplaceFile(fs, fs.PathJoin(to, IdentityFile), text)
	}
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return to, errors.Join(err, ondisk.SyncDir(fs, dir))
}

// FinishAside moves the rest.
func (d *Dir) FinishAside() error {
	aside := d.Identity.Read().Aside
	if aside == "" {
		return nil
	}
	to := d.File(aside)
	if err := d.FS.MkdirAll(to, 0o700); err != nil {
		return err
	}
	names, err := d.FS.List(d.Path)
	if err != nil {
		return err
	}
	for _, name := range names {
		if name == LogDir || strings.HasPrefix(name, "shard-") || name == DamageFile {
			err = errors.Join(err, d.FS.Rename(d.File(name), d.FS.PathJoin(to, name)))
		}
	}
	if err = errors.Join(err, ondisk.SyncDir(d.FS, to), ondisk.SyncDir(d.FS, d.Path)); err != nil {
		return err
	}
	d.Logger.Info("the damaged data was set aside: delete it once you have examined it", "aside", to)
	return d.Identity.asideCleared()
}

// NoteDamage records damage for the next start, since it can't be repaired while the node runs, and adds to the error what that
// start will do. Others: the node is a member of a cluster with other nodes.
func (d *Dir) NoteDamage(err error, others bool) error {
	var damage *ondisk.DamageError
	if d.InMemory || !errors.As(err, &damage) {
		return err
	}
	if d.FoundDamage() == nil {
		text, jsonErr := json.Marshal(damage)
		if jsonErr == nil {
			jsonErr = ReplaceFile(d.FS, d.File(DamageFile), append(text, '\n'))
		}
		if jsonErr != nil {
			return errors.Join(err, fmt.Errorf("and it was not noted for the next start: %w", jsonErr))
		}
	}
	if others {
		return fmt.Errorf("%w: start it again, and the other nodes will fill it", err)
	}
	return fmt.Errorf("%w: start it again to see what can be done", err)
}

// FoundDamage returns the damage recorded by an earlier run on this directory; nil: none, or it is accepted.
func (d *Dir) FoundDamage() error {
	path := d.File(DamageFile)
	text, err := ReadFile(d.FS, path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	damage := &ondisk.DamageError{}
	if json.Unmarshal(text, damage) != nil || damage.File == "" {
		damage = &ondisk.DamageError{What: "directory", File: d.Path, Reason: "something in it was found to be damaged"}
	}
	if d.AcceptDataLoss && damage.What == "log" { // opening it gives up what is unreadable
		return nil
	}
	damage.Reason += fmt.Sprintf(" (noted in %s)", path)
	return damage
}

// ForgetDamage removes the record of damage that is accepted.
func (d *Dir) ForgetDamage() error {
	if d.InMemory || !d.AcceptDataLoss {
		return nil
	}
	err := d.FS.Remove(d.File(DamageFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return errors.Join(err, ondisk.SyncDir(d.FS, d.Path))
}

package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

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
	to, err := makeAside(d.Path)
	if err != nil {
		return err
	}
	if err := d.Identity.Join(of, number, filepath.Base(to)); err != nil {
		return err
	}
	return d.FinishAside()
}

// makeAside creates a directory for damaged data, with a copy of the identity.
func makeAside(dir string) (to string, err error) {
	for i := 1; ; i++ {
		to = filepath.Join(dir, fmt.Sprintf("%s%d", damagedPrefix, i))
		if err := os.Mkdir(to, 0o700); err == nil {
			break
		} else if !errors.Is(err, os.ErrExist) {
			return to, err
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, IdentityFile))
	if err == nil {
		err = ReplaceFile(filepath.Join(to, IdentityFile), text)
	}
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return to, errors.Join(err, SyncDir(dir))
}

// FinishAside moves the rest.
func (d *Dir) FinishAside() error {
	aside := d.Identity.Read().Aside
	if aside == "" {
		return nil
	}
	to := filepath.Join(d.Path, aside)
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(d.Path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); name == LogDir || strings.HasPrefix(name, "shard-") || name == DamageFile {
			err = errors.Join(err, os.Rename(filepath.Join(d.Path, name), filepath.Join(to, name)))
		}
	}
	if err = errors.Join(err, SyncDir(to), SyncDir(d.Path)); err != nil {
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
			jsonErr = ReplaceFile(filepath.Join(d.Path, DamageFile), append(text, '\n'))
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

// FoundDamage returns the damage recorded by an earlier run on this directory; nil: none.
func (d *Dir) FoundDamage() error {
	path := filepath.Join(d.Path, DamageFile)
	text, err := os.ReadFile(path)
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
		return errors.Join(os.Remove(path), SyncDir(d.Path))
	}
	damage.Reason += fmt.Sprintf(" (noted in %s)", path)
	return damage
}

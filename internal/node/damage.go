package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	// damagedPrefix begins the names of directories that keep damaged data. Only the operator deletes them.
	damagedPrefix = "damaged-"
	// damageFile records damage found while the node ran, for its next start, which might otherwise open everything and run until
	// it hits the same damage.
	damageFile = "DAMAGED"
)

// setAside moves everything but the archive out of the way, and makes the directory that of the new number. The identity goes
// first: a start that finds the new one moves the rest.
func (d *dataDir) setAside(of string, number uint32) error {
	to, err := makeAside(d.cfg.Dir)
	if err != nil {
		return err
	}
	if err := d.identity.join(of, number, filepath.Base(to)); err != nil {
		return err
	}
	return d.finishAside()
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
	text, err := os.ReadFile(filepath.Join(dir, identityFile))
	if err == nil {
		err = replaceFile(filepath.Join(to, identityFile), text)
	}
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return to, errors.Join(err, syncDir(dir))
}

// finishAside moves the rest.
func (d *dataDir) finishAside() error {
	aside := d.identity.read().Aside
	if aside == "" {
		return nil
	}
	to := filepath.Join(d.cfg.Dir, aside)
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(d.cfg.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); name == logDir || strings.HasPrefix(name, "shard-") || name == damageFile {
			err = errors.Join(err, os.Rename(filepath.Join(d.cfg.Dir, name), filepath.Join(to, name)))
		}
	}
	if err = errors.Join(err, syncDir(to), syncDir(d.cfg.Dir)); err != nil {
		return err
	}
	d.cfg.Logger.Info("the damaged data was set aside: delete it once you have examined it", "aside", to)
	return d.identity.asideCleared()
}

// noteDamage records damage for the next start, since it can't be repaired while the node runs, and adds to the error what that
// start will do. Others: the node is a member of a cluster with other nodes.
func (d *dataDir) noteDamage(err error, others bool) error {
	var damage *DamageError
	if d.cfg.InMemory || !errors.As(err, &damage) {
		return err
	}
	if d.foundDamage() == nil {
		text, jsonErr := json.Marshal(damage)
		if jsonErr == nil {
			jsonErr = replaceFile(filepath.Join(d.cfg.Dir, damageFile), append(text, '\n'))
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

// foundDamage returns the damage recorded by an earlier run on this directory; nil: none.
func (d *dataDir) foundDamage() error {
	path := filepath.Join(d.cfg.Dir, damageFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	damage := &DamageError{}
	if json.Unmarshal(text, damage) != nil || damage.File == "" {
		damage = &DamageError{What: "directory", File: d.cfg.Dir, Reason: "something in it was found to be damaged"}
	}
	if d.cfg.AcceptDataLoss && damage.What == "log" { // opening it gives up what is unreadable
		return errors.Join(os.Remove(path), syncDir(d.cfg.Dir))
	}
	damage.Reason += fmt.Sprintf(" (noted in %s)", path)
	return damage
}

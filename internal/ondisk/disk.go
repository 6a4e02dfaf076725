// Package ondisk holds what the stores of a node have in common: telling damage from transient failures, and making directories. It
// knows bytes and files, but not their meaning.
package ondisk

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"
)

// Format is the Pebble format that stores are written in. It is pinned: a newer library must not change what is on disk before
// a release decides so.
const Format = pebble.FormatValueSeparation

// Prepare prepares a directory to be opened as a store. It refuses one written by a newer release, which is not damage: a newer
// program can open it. It removes the options that Pebble recorded when it last opened the store: Pebble only compares them with
// ours, which never change, and a damaged options file must not make the store's data inaccessible.
func Prepare(fs vfs.FS, dir string) error {
	if err := MakeDir(fs, dir); err != nil {
		return err
	}
	if err := CheckFormat(fs, dir); err != nil {
		return err
	}
	names, err := fs.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, OptionsPrefix) {
			if err := fs.Remove(fs.PathJoin(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// OptionsPrefix begins the names of the files in which Pebble records its options.
const OptionsPrefix = "OPTIONS-"

// CheckFormat refuses a directory written by a newer release, as Prepare does, and changes nothing.
func CheckFormat(fs vfs.FS, dir string) error {
	if value, err := atomicfs.ReadMarker(fs, dir, "format-version"); err == nil && value != "" {
		if v, err := strconv.ParseUint(value, 10, 64); err == nil && v > uint64(Format) {
			return fmt.Errorf("%q has format %d, and this version of the program knows formats up to %d: use the newer one that wrote it",
				dir, v, uint64(Format))
		}
	}
	return nil
}

// MakeDir creates a directory and its parents, so that their names survive a power loss.
func MakeDir(fs vfs.FS, dir string) error {
	if _, err := fs.Stat(dir); err == nil {
		return nil
	}
	parent := fs.PathDir(dir)
	if parent != dir {
		if err := MakeDir(fs, parent); err != nil {
			return err
		}
	}
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return SyncDir(fs, parent)
}

// SyncDir makes the names in a directory durable.
func SyncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

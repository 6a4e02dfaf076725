package ondisk

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
)

// ErrDamaged: synced data is lost. errors.As with *DamageError returns where.
var ErrDamaged = errors.New("data is damaged")

// DamageError describes which part of which file is lost.
type DamageError struct {
	What     string // what the file holds: "log", "state"
	File     string
	From, To int64 // bytes of File; both 0 if unknown
	Reason   string
}

func (e *DamageError) Error() string {
	if e.From == e.To {
		return fmt.Sprintf("%s %q is damaged: %s", e.What, e.File, e.Reason)
	}
	return fmt.Sprintf("%s %q is damaged in bytes %d to %d: %s", e.What, e.File, e.From, e.To, e.Reason)
}

// Is makes errors.Is(err, ErrDamaged) true.
func (e *DamageError) Is(target error) bool { return target == ErrDamaged }

// AsDamage turns an error in opening or reading a store's file or directory into a DamageError, unless it is a system error, which may
// be transient. A missing file counts as damage.
func AsDamage(what, path string, err error) error {
	var sys syscall.Errno
	if err == nil || errors.Is(err, ErrDamaged) || errors.As(err, &sys) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return &DamageError{What: what, File: path, Reason: FirstLine(err)}
}

// FirstLine returns the first line of a Pebble error, without the details that follow.
func FirstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

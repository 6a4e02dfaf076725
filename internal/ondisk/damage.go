package ondisk

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
)

// ErrDamaged: data that was synced is lost. errors.As with *DamageError says where.
var ErrDamaged = errors.New("data is damaged")

// DamageError says which part of which file is lost.
type DamageError struct {
	What     string // the data that the file is of: "log", "state"
	File     string
	From, To int64 // bytes of File; both 0 where it isn't known
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

// AsDamage makes an error in opening or reading a file, or a directory of a store, a DamageError, unless the system gave it:
// such an error may go away. A file that is missing does not.
func AsDamage(what, path string, err error) error {
	var sys syscall.Errno
	if err == nil || errors.Is(err, ErrDamaged) || errors.As(err, &sys) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return &DamageError{What: what, File: path, Reason: FirstLine(err)}
}

// FirstLine is what an error of Pebble says, without the details that Pebble hangs below.
func FirstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

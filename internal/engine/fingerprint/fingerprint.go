package fingerprint

import (
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// A fingerprint identifies failures of one task type with the same normalized message. It is computed when a task dies
// and stored in its row and in the index of the dead, so that dead letters can be counted by it without being read.

// Of returns the fingerprint of a task type's failures with a normalized message.
func Of(typ, message string) uint64 {
	var d xxhash.Digest
	d.Reset()
	for _, s := range []string{typ, "\x00", message} {
		_, _ = d.WriteString(s)
	}
	return d.Sum64()
}

// Text returns a fingerprint as 16 hexadecimal digits.
func Text(print uint64) string { return fmt.Sprintf("%016x", print) }

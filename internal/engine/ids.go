package engine

import (
	"encoding/binary"

	"github.com/pawlq/pawl/internal/task"
)

// partID names what belongs to something that has an id of its own, by a number or another id: the same on every try, and the same
// as no other's. It is a UUID of version 8.
func partID(of, part task.ID) task.ID {
	return requestOf(of, mix(binary.BigEndian.Uint64(part[:8])^mix(binary.BigEndian.Uint64(part[8:]))))
}

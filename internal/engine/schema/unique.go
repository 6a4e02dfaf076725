package schema

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Role is a task's part in its unique key.
type Role uint8

// The values are stored.
const (
	RoleNone   Role = iota // it has no unique key, or has released it
	RoleHolder             // it holds the key
	RoleNext               // it waits for the end of the holder's claim
)

// UniqueRow records which tasks hold and wait for a unique key.
type UniqueRow struct {
	Holder task.ID
	Next   task.ID // zero: none
	Slot   int     // of the holder: determines which shard to ask for the key when slots have moved
}

// Encode returns the row.
func (u UniqueRow) Encode() []byte {
	r := NewRow(40)
	r.Bytes(1, u.Holder[:])
	r.ID(2, u.Next)
	r.Num(3, uint64(u.Slot)) // #nosec G115 -- below task.SlotCount
	return r
}

// DecodeUnique decodes the row of a unique key.
func DecodeUnique(row []byte) (u UniqueRow, err error) {
	err = Decode(row, func(tag protowire.Number, v uint64) {
		if tag == 3 {
			u.Slot = int(v % task.SlotCount)
		}
	}, func(tag protowire.Number, b []byte) {
		switch tag {
		case 1:
			copy(u.Holder[:], b)
		case 2:
			copy(u.Next[:], b)
		}
	})
	return u, err
}

// ReadUnique reads the row of a unique key; ok is false if no task holds it.
func ReadUnique(from store.Reader, ns, queue, key string) (u UniqueRow, ok bool) {
	row, ok := from.Get(UniqueKey(ns, queue, key))
	if ok {
		var err error
		u, err = DecodeUnique(row)
		Must(err)
	}
	return u, ok
}

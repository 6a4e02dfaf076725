package schema

import (
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
}

// Encode returns the row.
func (u UniqueRow) Encode() []byte { return Encode(36, &u, (*UniqueRow).fields) }

// DecodeUnique decodes the row of a unique key.
func DecodeUnique(row []byte) (u UniqueRow, err error) {
	f := Decoding(row)
	for f.Next() {
		u.fields(&f)
	}
	return u, f.Err()
}

func (u *UniqueRow) fields(f *Fields) {
	f.ID(1, &u.Holder)
	f.ID(2, &u.Next)
}

// ReadUnique reads the row of a unique key; ok is false if no task holds it.
func ReadUnique(from store.Reader, ns, queue, key string) (u UniqueRow, ok bool) {
	return Read(from, UniqueKey(ns, queue, key), DecodeUnique)
}

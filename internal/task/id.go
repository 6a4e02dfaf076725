package task

import (
	"bytes"
	"encoding/hex"
	"fmt"
)

// ID is a task's id: a UUIDv7 whose twelve bits after the version hold the number of the shard that owns the task, so
// that any node can route by the id alone.
type ID [16]byte

// MaxShard is the largest shard number that fits an ID.
const MaxShard = 1<<12 - 1

// NewID returns an id made of a time in Unix milliseconds and 62 random bits.
func NewID(shard uint32, unixMilli int64, random uint64) ID {
	var id ID
	for i := range 6 {
		id[i] = byte(unixMilli >> (40 - 8*i))
	}
	id[6] = 0x70 | byte(shard>>8)&0x0f
	id[7] = byte(shard)
	for i := range 8 {
		id[8+i] = byte(random >> (56 - 8*i))
	}
	id[8] = 0x80 | id[8]&0x3f
	return id
}

// Compare orders ids by their bytes: by time, shard and random bits.
func (id ID) Compare(o ID) int { return bytes.Compare(id[:], o[:]) }

// Shard returns the number of the shard that owns the task.
func (id ID) Shard() uint32 { return uint32(id[6]&0x0f)<<8 | uint32(id[7]) }

// UnixMilli returns the time in the id. It comes from the producer's clock: nothing may depend on it.
func (id ID) UnixMilli() int64 {
	var ms int64
	for _, b := range id[:6] {
		ms = ms<<8 | int64(b)
	}
	return ms
}

// IsV7 reports whether a UUID is of version 7.
func (id ID) IsV7() bool { return id[6]>>4 == 7 && id[8]>>6 == 2 }

// String returns the id in the usual form of a UUID, in lower case.
func (id ID) String() string {
	var b [36]byte
	hex.Encode(b[:], id[:4])
	b[8] = '-'
	hex.Encode(b[9:], id[4:6])
	b[13] = '-'
	hex.Encode(b[14:], id[6:8])
	b[18] = '-'
	hex.Encode(b[19:], id[8:10])
	b[23] = '-'
	hex.Encode(b[24:], id[10:])
	return string(b[:])
}

// ParseID parses a UUID of any version in its usual form; upper case is accepted.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return id, fmt.Errorf("%q is not a UUID", clip(s))
	}
	var digits [32]byte
	n := copy(digits[:], s[:8])
	n += copy(digits[n:], s[9:13])
	n += copy(digits[n:], s[14:18])
	n += copy(digits[n:], s[19:23])
	copy(digits[n:], s[24:])
	if _, err := hex.Decode(id[:], digits[:]); err != nil {
		return ID{}, fmt.Errorf("%q is not a UUID", clip(s))
	}
	return id, nil
}

// clip shortens a bad value for an error message.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return Cut(s, most) + "…"
}

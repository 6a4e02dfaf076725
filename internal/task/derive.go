package task

import (
	"encoding/binary"
)

// PartID derives the id of a part of something that has an id itself. It is the same on every try, and unique to the
// pair. It is a UUID of version 8.
func PartID(of, part ID) ID {
	return RequestOf(of, Mix(binary.BigEndian.Uint64(part[:8])^Mix(binary.BigEndian.Uint64(part[8:]))))
}

// ChildID returns the id of the n-th task that a schedule or a task creates inside its shard, at a time in milliseconds.
func ChildID(parent ID, n uint64, ms int64) ID {
	return NewID(parent.Shard(), ms, childSeed(parent, n))
}

// RequestOf returns the request id of such a task, for the shard to which it is sent.
func RequestOf(parent ID, n uint64) (id ID) {
	binary.BigEndian.PutUint64(id[:8], childSeed(parent, n))
	binary.BigEndian.PutUint64(id[8:], Mix(childSeed(parent, n)^binary.BigEndian.Uint64(parent[:8])))
	id[6], id[8] = 0x80|id[6]&0x0f, 0x80|id[8]&0x3f // a UUID of version 8
	return id
}

// childSeed mixes the bits of a parent and a number.
func childSeed(parent ID, n uint64) uint64 {
	return Mix(binary.BigEndian.Uint64(parent[8:]) ^ Mix(n))
}

// MoveRequest returns the request id of a task that an operation moves.
func MoveRequest(id, operation ID) ID {
	return RequestOf(id, childSeed(operation, 0))
}

// Chance returns a pseudo-random number in [0, 1) derived from a task and a step of its life, the same on every try.
func Chance(id ID, step uint64) float64 {
	return float64(Mix(binary.BigEndian.Uint64(id[8:])^Mix(step))>>11) / (1 << 53)
}

// Mix mixes the bits of a number (the finalizer of splitmix64).
func Mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// Package store keeps one shard's state: a Pebble database without a write-ahead log of its own, since the shard's Raft log
// serves as one, and the shard's clock.
//
// A leader opens a Tx, reads and writes through it, and turns it into an entry of bytes. Every replica applies the same bytes
// with Apply, which adds the entry's log position to the same batch. After a crash the state is some prefix of what was
// applied, and Durable returns its position.
//
// It knows bytes, not tasks, and nothing about Raft except the position of an entry.
package store

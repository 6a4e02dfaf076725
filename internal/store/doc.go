// Package store keeps one shard's state: a Pebble database without a write-ahead log, because the shard's Raft log is
// its write-ahead log, and the shard's clock.
//
// A leader opens a Tx, reads and writes through it, and turns it into an entry of bytes. Every replica applies the
// same bytes with Apply, which puts the log position of the entry in the same batch. After a crash the state is some
// prefix of what was applied, and Durable says which.
//
// It knows bytes, not tasks, and nothing of Raft but the position of an entry.
package store

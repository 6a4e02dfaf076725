// Package events keeps what happened in a shard for a while, for readers who come for it: in memory, where the shard is led, and only
// while somebody reads.
//
// It does not know what makes events happen, nor shards, nodes or callers: a ring is fed with what was committed, and read from a place
// on.
package events

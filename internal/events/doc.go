// Package events keeps the recent events of a shard for readers: in memory, on the node that leads the shard, and only while there are
// readers.
//
// It does not know what causes events, nor shards, nodes or callers: a ring is fed with committed events, and read from a given place.
package events

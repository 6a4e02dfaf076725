// Package audit keeps, in a shard's state, a log of what operators did: entries in order, each with the hash of the one before in its
// namespace, so that a changed or missing entry is detected. A shard keeps a bounded number of bytes, of which each namespace has a share
// that others can't take. An entry is written in the round of the action that it records, so that neither can be lost without the other.
//
// It knows no queues, tasks or nodes: its callers describe what was changed. It has no clock; the time of an entry is that of its
// round.
package audit

// Package audit keeps, in a shard's state, a record of what operators did: entries in the order of their making, each with the
// hash of the one before, so that one that is changed or missing is found. An entry is written in the round that does what it
// tells of, so that neither can be lost without the other.
//
// It knows no queues, tasks or nodes: those who change them say what was changed. It has no clock; a round's time is the
// entry's.
package audit

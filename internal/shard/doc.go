// Package shard runs one Raft group over a shard's state: one loop that owns the group, the state and the hooks.
//
// On the leader it gathers waiting calls into a round: it runs each against one transaction, seals their writes into one
// log entry, and answers the calls when that entry is committed and applied. One round is in flight at a time, and the calls
// that arrive meanwhile form the next one, so a busy shard batches its fsyncs without further tuning. A round that wrote
// nothing is a read, and its answers wait until a majority has confirmed the leader.
//
// An entry carries the outcome, not the call, so replicas only write bytes into their state. A guard in each entry, the
// term and index that the entry was computed on, makes replicas drop an entry that was computed on another state.
//
// It deals in bytes and rounds. It does not know tasks, queues or leases, nor how messages reach other nodes.
package shard

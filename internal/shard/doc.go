// Package shard runs one Raft group over a shard's state: one loop that owns the group, the state and the hooks.
//
// On the leader it gathers waiting calls into a round: it runs each against one transaction, seals what they wrote into
// one log entry, and answers them when that entry is committed and applied. One round is in flight at a time, and the
// calls that come meanwhile are the next one, so a busy shard shares its fsyncs by itself. A round that wrote nothing
// is a read, and its answers wait until a majority has confirmed the leader.
//
// An entry carries the outcome, not the call, so replicas only put bytes into their state. A guard in each entry, the
// term and the index that it was computed on, makes a replica drop one that was computed on another state.
//
// It knows bytes and rounds; neither tasks, queues nor leases, nor how messages reach other nodes.
package shard

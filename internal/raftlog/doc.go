// Package raftlog keeps the Raft logs of all shards of a node in one write-ahead log: entries, hard states and truncation
// points. A Save is synced before it returns, and the Saves of many shards share a sync. The places of all entries are kept
// in memory, and so are the newest entries themselves.
//
// Damage at the end of the log looks like a torn write, and the log opens without the damaged part. So a small file next to
// it, the marks, records how far each shard's log reached, and its vote. It is synced within 100 ms of a write, off the
// write path, and exactly when the log is closed, when a term begins or a vote is given, and before a log is truncated. A log
// that comes back shorter than its mark, or without its vote, is refused, because another replica or a client relies on what it has lost.
//
// A failed write or sync is never retried: the log reports it and takes no more writes.
//
// It knows entries, not their contents; neither tasks nor state. The state knows how far it has applied its log, and passes
// that to Log.Shard.
package raftlog

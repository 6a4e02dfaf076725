// Package raftlog keeps the Raft logs of all shards of a node in one Pebble store: entries, hard states and truncation
// points. A Save is synced before it returns, and the Saves of many shards share an fsync.
//
// Pebble takes damage in the last 32 KiB of its write-ahead log for a torn tail, and opens without it. So a small file
// beside the store, the marks, says how far each log reached: it is synced at most every 100 ms, off the write path,
// and exactly when the log is closed, when a term begins and before a log is cut back. A log that comes back shorter
// than its mark is refused, because what it has lost was promised to somebody.
//
// A failed write or fsync is never retried: the log reports it and takes no more writes.
//
// It knows entries, not what is in them; neither tasks nor state. How far a state has applied its log is the state's to
// say, and given to Log.Shard.
package raftlog

// Package raftlog keeps the Raft logs of all shards of a node in one write-ahead log: entries, hard states and truncation
// points. A Save is synced before it returns, and the Saves of many shards share a sync. In memory there are the places of
// all entries and the newest entries themselves.
//
// Damage to what was written last looks like a torn write, and the log opens without it. So a small file beside it, the
// marks, says how far each shard's log reached: it is synced at most every 100 ms, off the write path, and exactly when the
// log is closed, when a term begins and before a log is cut back. A log that comes back shorter than its mark is refused,
// because what it has lost was promised to somebody.
//
// A failed write or sync is never retried: the log reports it and takes no more writes.
//
// It knows entries, not what is in them; neither tasks nor state. How far a state has applied its log is the state's to
// say, and given to Log.Shard.
package raftlog

// Package wal is a write-ahead log: records in numbered files of a fixed size, its segments.
//
// Segments are filled with zeros before they are used, and are reused when their records are no longer needed. So a sync
// overwrites existing blocks of the file and changes neither its size nor its extents, which costs the disk and the
// processor about half as much as appending. Callers that append at the same time share a sync.
//
// The end of the log is the first place without a valid record. A power loss may leave a torn record there; damage in the
// middle looks the same. So every record says how far the log was synced when it was appended: a valid record after the gap
// that says the gap was synced proves that data is lost, and Open refuses the log. Damage to the data synced last leaves no
// such witness: callers that must notice it keep a mark of their own.
//
// The package knows records, but neither their contents nor their owners.
package wal

// Package wal is a write-ahead log: records in numbered files of a fixed size, its segments.
//
// Segments are written full of zeros before they are used, and used again when nobody needs their records any more. So a
// sync writes over blocks that the file already has and changes neither its size nor its extents, which takes the disk
// and the processor about half of what appending takes. Callers that append at the same time share a sync.
//
// The end of the log is the first place without a valid record. A power loss may leave a torn record there; damage to
// the middle looks the same. So every record says how far the log was synced when it was appended: a valid record behind
// the gap that claims the gap was synced proves that something is lost, and Open refuses the log. Damage to what was
// synced last leaves no such witness: callers that must notice it keep a mark of their own.
//
// The package knows records, neither what is in them nor whose they are.
package wal

// Package wal is a write-ahead log: records in numbered files of a fixed size, its segments.
//
// Segments are filled with zeros before they are used, and are reused when their records are no longer needed. So a sync
// overwrites existing blocks of the file and changes neither its size nor its extents, which costs the disk and the
// processor about half as much as appending. Callers that append at the same time share a sync.
//
// Callers store what their clients chose. So that it never passes for a record, not even in a reused segment or after a crash,
// each segment has a random seed that its records repeat, and gets a new one each time its file is used. The seed is in the
// segment's head, which is on disk before the file gets a segment's name: a head that can't be read is damage.
//
// The end of the log is the first place without a valid record. A power loss may leave a torn record there; damage in the
// middle looks the same. So every record says how far the log was synced when it was appended: a valid record after the gap
// that says the gap was synced proves that data is lost, and Open refuses the log. Damage to the data synced last leaves no
// such witness: callers that must notice it keep a mark of their own.
//
// What Open reads after the last sync that is proven may be in memory only: a failed sync leaves it there. So Open writes it
// again. It never overwrites records after the end, for such a write could be lost too: it begins the next segment.
//
// The package knows records, but neither their contents nor their owners.
package wal

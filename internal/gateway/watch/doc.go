// Package watch streams events to callers: from all shards in which they may happen, each followed by a goroutine of its own, with a
// cursor at which a caller that comes back goes on. A digest reports only that something has changed.
//
// It knows no transport: the caller passes a function that sends a frame. It knows no shard's leader either: its Source does.
package watch

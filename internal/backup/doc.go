// Package backup defines the format of a backup: a stream of bytes with the states of all shards of a cluster, one after the
// other, and checksums of each piece and of the whole.
//
// It does not know what a shard's state looks like, where it comes from or where it goes.
package backup

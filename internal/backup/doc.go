// Package backup is the form of a backup: a stream of bytes that holds the states of all shards of a cluster, one after the
// other, and says for each piece and for the whole whether it is what was written.
//
// It knows nothing of what a shard's state looks like, where it comes from and where it goes.
package backup

// Package node is the composition root: it turns a Config into a running node. It opens the files on disk, starts the system shard,
// the data shards, the broker and the gateway in this order, and stops them in reverse.
//
// It knows every package and does the work of none.
package node

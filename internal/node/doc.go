// Package node is the composition root: it turns a Config into a running node. It opens what lies on disk, starts the
// system shard, the data shards, the broker and the gateway in this order, and stops them in the reverse one.
//
// It knows every room of the house and does none of their work.
package node

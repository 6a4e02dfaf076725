// Package cluster knows which shards there are and which queue lies where. The system shard owns that; every node keeps
// a copy, and decides nothing by it that a shard would not refuse if the copy were stale.
//
// It knows no tasks and no Raft: it reaches the system shard and the data shards through small interfaces.
package cluster

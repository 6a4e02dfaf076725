// Package cluster manages the nodes and shards: which node has which replica of a shard, and which shard has which queue. All of this is
// stored in the system shard. Control reads and changes its tables where it is led, the Reconciler makes the shards' memberships match the
// tables, and every node keeps a Copy. Nothing is decided by a copy alone that a shard would not refuse if the copy were stale.
//
// The plan for a shard is a pure function of the rows, of which nodes were heard from, and of what the shard's leader reports about its
// membership. Each of its steps can be repeated, and the loop that takes them may die at any of them: the next pass sees what is left to
// do.
//
// It knows no tasks, no Raft and no network: it reaches the system shard, the data shards and their groups through small interfaces.
package cluster

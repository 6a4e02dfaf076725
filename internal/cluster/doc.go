// Package cluster knows which nodes and shards there are, which replica of a shard lives where, and which queue lies in
// which shard. The system shard owns all that. Control reads and changes its tables where it is led, the Reconciler makes
// the shards' memberships what the tables say, and every node keeps a Copy, by which it decides nothing that a shard
// would not refuse if the copy were stale.
//
// The plan for a shard is a pure function of the rows, of which nodes were heard of, and of what the shard's leader says
// of its membership. Each of its steps can be repeated, and the loop that takes them may die at any of them: what is left
// over is seen at the next look.
//
// It knows no tasks, no Raft and no network: it reaches the system shard, the data shards and their groups through
// small interfaces.
package cluster

// Package queues keeps the queues in the system shard: their settings, the shard or shards that take their tasks, and
// how slots move from one shard to another. The data shards decide by copies of the settings, which it sends them, and
// again after a leader has died in between.
//
// It knows no tasks, and reaches the data shards through a small interface. A namespace's share of quotas is someone else's: it calls a
// function before a shard gets its first queue.
package queues

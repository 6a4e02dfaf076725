// Package fanout asks the shards that have the parts of a queue, in parallel where that is possible, and adds up or merges what they
// answer. It shares claims over weighted queues in several shards out, as a shard does for queues of its own. It also limits what a call
// sees of the cluster's queues to those of its token.
//
// It knows where queues are, but no services, and no rule of a task's life.
package fanout

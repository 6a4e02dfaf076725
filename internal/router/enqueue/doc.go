// Package enqueue brings new tasks to the shards of their queues: those of callers (enqueue.go), to the right shard
// even while slots move (slots.go), members of groups (groups.go), and the messages from one shard to another
// (outbox.go). Which shards have a queue comes from this node's copy, which is corrected when a call shows that a queue
// has moved (directory.go).
//
// It does not know what a shard does with a task, nor which tasks are allowed, nor who may change a queue.
package enqueue

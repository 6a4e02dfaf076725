// Package enqueue brings new tasks to the shards of their queues: those of callers (enqueue.go), to the right shard even while slots move
// (slots.go), members of groups (groups.go), and the messages from one shard to another (outbox.go).
//
// It does not know what a shard does with a task, nor which tasks are allowed.
package enqueue

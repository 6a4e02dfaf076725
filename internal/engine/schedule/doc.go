// Package schedule creates tasks at the times that schedules define, and keeps a history with the outcome of each tick.
// It does not know in which shards the tasks' queues are: a task for another shard goes into the outbox.
package schedule

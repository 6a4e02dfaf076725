// Package schedule makes tasks at the times that schedules name, and keeps a history of what became of each tick. It knows nothing of where the
// tasks' queues lie: a task for another shard goes into the outbox.
package schedule

// Package operation implements bulk operations, which act on many tasks step by step, and the moving of tasks to other
// queues. It knows the steps in one shard; the broker asks one shard after the other.
package operation

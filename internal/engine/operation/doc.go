// Package operation does one thing with many tasks, step by step, and moves tasks to other queues. It knows the steps of one shard; who asks one
// shard after another is the broker.
package operation

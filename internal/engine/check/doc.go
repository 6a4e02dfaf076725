// Package check checks that a shard's rows agree with its tasks. It knows the rows, and neither rounds nor what a
// leader has in memory. Each policy checks its own rows.
package check

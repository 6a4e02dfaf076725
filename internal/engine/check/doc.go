// Package check holds what a shard has stored against the tasks: what must agree with what. It knows the rows, and neither rounds
// nor what a leader has in memory. Each policy checks its own rows.
package check

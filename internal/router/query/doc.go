// Package query answers questions that no single shard or node can: where a task is read (tasks.go), why it waits (explain.go), and what
// all shards or all nodes have to say together, as events, the audit log, statistics and the archive.
//
// It changes nothing. It does not know what the answers mean, nor who may ask.
package query

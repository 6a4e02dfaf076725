// Package broker runs a node's shards. It sends each call into its shard's rounds, ticks in them, keeps the
// claims that wait for a task and serves them in the round that brings one, wakes callers that wait for a result, and logs
// and archives dead letters.
//
// It serves the shards that this node leads, and returns *NotLeader for others. It knows nothing about request formats
// or roles, and reads within the scope of a call (task.Scope). The caller must know which shard a queue is in (package router).
package broker

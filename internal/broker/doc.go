// Package broker runs a node's shards: it sends each call into its shard's rounds, lets time pass in them, keeps the
// claims that wait for a task and feeds them in the round that brings one, wakes those who wait for a result, logs and
// archives dead letters.
//
// It answers for the shards that this node leads, and says not leader for others. It knows nothing of requests' formats
// or of who may call what; which shard a queue lies in is the caller's to know (package cluster).
package broker

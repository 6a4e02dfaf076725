// Package router joins the brokers of all nodes into one: a call runs where its shard is led, on this node or another.
// The gateway uses it as broker and cluster, the controller as data shards.
//
// Most calls are verbs, which it only takes to where they run. It has methods for what takes several of them: reads of
// several shards or nodes (tasks.go, explain.go, events.go, audit.go, stats.go), once keys (once.go), schedules and
// their names (schedules.go), operations on many tasks (operations.go), and the workers of all nodes (workers.go).
// Below it, forward takes a call to where it runs, enqueue knows which shards have a queue and brings tasks there, and
// claim claims and settles them.
//
// It knows no Raft, no storage and no network: brokers say who leads, and the other nodes are an interface. It does not know what a task's
// verbs do, nor who may call them.
package router

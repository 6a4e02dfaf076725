// Package router joins the brokers of all nodes into one: whatever is called here runs where its shard is led, on this node or another. The
// gateway uses it as broker and cluster, the controller as data shards.
//
// The package only composes its parts. forward finds the leader of a shard and takes a call there; all others use it: directory (which shards
// have a queue), enqueue, claims, once (keys), query (what is read from several shards or nodes), schedules, operations and workers.
//
// It knows no Raft, no storage and no network: brokers say who leads, and the other nodes are an interface. It does not know what a task's
// verbs do, nor who may call them.
package router

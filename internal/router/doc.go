// Package router joins the brokers of all nodes into one: each call names a shard, and the router runs it where the shard is led, on this
// node's broker or through that node's router. A call that certainly did not run is retried elsewhere until a leader is found; one whose
// outcome is unknown is retried only if repeating it is safe. The gateway uses it as broker and cluster, the controller as data shards.
//
// Where to look: route.go finds the leader, method.go and wire.go show how a call travels, and claim.go, await.go and watch.go have what
// long waits and lost answers need beyond that.
//
// It knows no Raft, no storage and no network: brokers say who leads, and the other nodes are an interface. It does not know what a task's
// verbs do, nor who may call them.
package router

// Package router makes of the brokers of all nodes one: each call names a shard, and the router runs it where the shard is
// led, on this node's broker or through that node's router. A call that certainly did not run is tried again elsewhere until
// a leader is found, one whose outcome is unknown only if it may be repeated without harm. To the gateway it is the broker
// and the cluster, to the controller the data shards.
//
// Where to look: route.go finds the leader, method.go and wire.go are how a call travels, claim.go, await.go and watch.go
// are what a long wait or a lost answer needs beyond that.
//
// It knows no Raft, no storage and no network: who leads is what brokers say, and the other nodes are an interface. It does
// not know what a task's verbs do, nor who may call them.
package router

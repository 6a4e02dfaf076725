// Package routertest has a world for tests of the router and its parts: nodes with routers over fake brokers that share the state of their
// shards in place of Raft, and a network and leaders that can misbehave.
//
// It does not know what the parts do: it answers as their brokers and their system shard would.
package routertest

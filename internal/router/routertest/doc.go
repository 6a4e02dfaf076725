// Package routertest simulates a cluster for tests of the router and its parts: nodes have routers over fake brokers that share the state
// of their shards in place of Raft, and tests can make the network and the leaders misbehave.
//
// It does not know what the router's parts do. It only answers them as their brokers and their system shard would.
package routertest

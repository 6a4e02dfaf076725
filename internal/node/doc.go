// Package node is the composition root: it turns a Config into a running node. It opens the files on disk, starts the system shard,
// the data shards, the broker and the gateway in this order, and stops them in reverse.
//
// node.go assembles the parts of a node. Each part is a type with a file of its own: bootstrap.go, agent.go, heartbeat.go, health.go and
// so on.
//
// It knows every package and does the work of none.
package node

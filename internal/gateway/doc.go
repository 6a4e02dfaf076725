// Package gateway is where callers meet a node: it serves gRPC, and REST by package rest, lets callers in, refuses what breaks a
// rule, asks the broker, and encodes the answers.
//
// Where to look: serve.go is the listener, grpc.go and web.go the two faces, access.go who is let in, enqueue.go
// tasks.go claim.go settle.go work.go queues.go dead.go cluster.go and their like are the methods of the API, convert_*.go the way between the
// contract's words and the broker's.
//
// It knows no storage, no Raft and no rule of a task's life: which state allows what is the engine's, which shard has
// which queue the cluster's.
package gateway

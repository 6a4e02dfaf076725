// Package gateway serves a node's API: gRPC, and REST by package rest. It authenticates and authorizes callers, validates requests,
// calls the broker, and encodes the answers.
//
// Where to look: serve.go is the listener, grpc.go and web.go serve the two protocols, access.go checks access, enqueue.go tasks.go
// claim.go settle.go work.go queues.go dead.go cluster.go and their like are the methods of the API, convert_*.go convert between
// the API's messages and the broker's types.
//
// It knows no storage, no Raft and no rule of a task's life: the engine decides which state allows what, and the cluster which
// shard has which queue.
package gateway

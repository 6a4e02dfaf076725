// Package gateway is where callers meet a node: it decodes gRPC and REST requests, refuses what breaks a rule, asks the
// broker, and encodes the answers. Both faces say the same because they are the same: a REST handler decodes JSON into
// the request of the gRPC method, calls that method, and encodes its answer to the JSON of openapi.json.
//
// Where to look: grpc.go and rest.go are the two faces, enqueue.go tasks.go claim.go settle.go work.go queues.go dead.go
// cluster.go the methods that both share, convert_*.go the way between the contract's words and the broker's, errors.go the one
// place where refusals become codes, serve.go the listener.
//
// It knows no storage, no Raft and no rule of a task's life: which state allows what is the engine's, which shard has
// which queue the cluster's.
package gateway

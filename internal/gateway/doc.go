// Package gateway serves a node's API: gRPC, and REST by package rest. It validates requests, calls the broker, and encodes the
// answers.
//
// Gateway is the composition: listen has the port, receive reads messages, access admits callers, callinfo is what a
// call carries, and services.go gives each service what it needs. grpc.go, web.go and sqs.go turn requests of the three
// protocols into calls. The services of producers, workers and operators are here, one file for each subject;
// administration, statistics and watch, which streams events, are packages of their own. Shared by services: convert
// converts messages, fanout asks the shards of a queue and divides claims, tasktrace makes spans.
//
// It knows no storage, no Raft and no rule of a task's life: the engine decides which state allows what, and the cluster which
// shard has which queue.
package gateway

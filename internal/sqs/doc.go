// Package sqs serves clients of Amazon SQS. A message is a task whose payload is the message's body: it is sent by an enqueue,
// received by a claim, and deleted by an ack, through the same calls as in gRPC and REST.
//
// Where to look: handler.go recognizes and runs requests, attributes.go has the attributes of queues, queues.go send.go receive.go
// settle.go the actions, message.go the conversion between messages and tasks, handle.go receipt handles.
//
// It knows no shards and no storage, nor who may call what: Core and Call do.
package sqs

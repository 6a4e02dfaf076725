// Package sqs is the door for clients of Amazon SQS. A message is a task whose payload is its body: it is sent by an enqueue, received by
// a claim, and deleted by an ack, with the calls that gRPC and REST make.
//
// Where to look: door.go tells what is for the door and runs a request, attributes.go has what queues can be told, queues.go send.go
// receive.go settle.go the actions, message.go the way between messages and tasks, handle.go receipt handles.
//
// It knows no shards and no storage, and not who may call what: Core and Call do.
package sqs

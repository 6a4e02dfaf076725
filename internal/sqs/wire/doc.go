// Package wire reads and writes the two forms of the Amazon SQS protocol: AWS JSON 1.0, and the older Query protocol with forms and
// XML. It has the service's errors in both forms, and the checksums of messages.
//
// Where to look: input.go has what a request may say, json.go and query.go read it, output.go has what an answer says, json_write.go
// and xml_write.go write it, errors.go is the list of errors.
//
// It knows no queues and no tasks, and not who may call what.
package wire

// Package wire reads and writes the two forms of the Amazon SQS protocol: AWS JSON 1.0, and the older Query protocol with forms and
// XML. It has Amazon SQS's errors in both forms, and the checksums of messages.
//
// Where to look: input.go has the fields of requests, json.go and query.go read them, output.go has the fields of responses,
// json_write.go and xml_write.go write them, errors.go is the list of errors.
//
// It knows no queues and no tasks, nor who may call what.
package wire

// Package wire reads and writes the two forms of the Amazon SQS protocol: AWS JSON 1.0, and the older Query protocol with forms and
// XML. It has Amazon SQS's errors in both forms, and the checksums of messages.
// It verifies signatures too: AWS Signature Version 4, in the Authorization header or in the query of a presigned URL, by the rules
// of "Create a signed AWS API request" in the documentation of AWS Identity and Access Management. AWS's own libraries can only sign.
//
// Where to look: input.go has the fields of requests, json.go and query.go read them, output.go has the fields of responses,
// json_write.go and xml_write.go write them, errors.go is the list of errors, sigv4.go verifies.
//
// It knows no queues and no tasks, nor who may call what, nor access keys: the caller looks up
// the secret.
package wire

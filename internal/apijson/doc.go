// Package apijson writes the messages of the API as JSON and reads them: for REST, for the command line's output, files
// and flags, and for the rows of an outbox. So all of them have the same names, forms and errors.
//
// Types define how fields are written, with the exceptions in form.go: a new message needs nothing here. message.go is
// what is known of a message's type, message_*.go read and write messages, json_*.go are the readers and writers below
// them, parameter.go reads fields in paths and queries, schema.go
// describes fields for the OpenAPI document, document.go a document of its own: a row of an outbox, a file,
// a flag.
//
// It knows no rule beyond the form of a message, nor where one comes from.
package apijson

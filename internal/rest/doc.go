// Package rest serves REST: it decodes a request to the gRPC method's request, calls the method, and encodes the answer. So both
// APIs behave the same.
//
// The proto files define the addresses of calls (route.go), and types define how fields are written in JSON, with the exceptions in
// form.go. A new call needs nothing here. request.go fills a request from path, query, body and headers, message_*.go read and
// write messages as JSON, json_*.go are the readers and writers below them, exchange.go is one request and its answer. document.go
// reads what is a request's body elsewhere: a row of an outbox, a file, a flag. The other files are routes with a special form of
// request or answer.
//
// It knows no rule beyond the form of a request, nor who may call what: the methods and Config.Call check that.
package rest

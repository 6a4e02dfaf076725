// Package rest is the face of REST: it decodes a request to that of the gRPC method, calls the method, and encodes its answer. So both
// faces say the same.
//
// The proto files say where REST has a call (route.go), and types say how JSON has a field, but for the exceptions in form.go. A new call
// needs nothing here. request.go fills a request from path, query, body and headers, message_*.go read and write messages as JSON, json_*.go
// are the readers and writers below them, exchange.go is one request and its answer. The other files are routes whose requests or answers
// have a form of their own.
//
// It knows no rule of what a request may say beyond its form, and not who may call what: the methods do, and Config.Call.
package rest

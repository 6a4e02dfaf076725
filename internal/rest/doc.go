// Package rest serves REST: it decodes a request to the gRPC method's request, calls the method, and encodes the answer. So both
// APIs behave the same.
//
// The proto files define the addresses of calls (route.go), and apijson how messages are written as JSON. A new call needs nothing
// here. request.go fills a request from path, query, body and headers, body.go reads a body in bounded memory, exchange.go is one
// request and its answer. The other files are routes with a special form of request or answer.
//
// It knows no rule beyond the form of a request, nor who may call what: the methods and Config.Call check that.
package rest

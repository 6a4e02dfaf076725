// Package rest is the face of REST: it decodes a request to that of the gRPC method, calls the method, and encodes its answer to the
// JSON of openapi.json. So both faces say the same.
//
// Where to look: rest.go has the routes and what REST is made of, exchange.go one request and its answer, json_*.go how JSON is read
// and written, the other files a group of routes each.
//
// It knows no rule of what a request may say beyond its form, and not who may call what: the methods do, and Config.Call.
package rest

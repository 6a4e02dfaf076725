package rest

import _ "embed"

// document is the OpenAPI description of REST, with an example of each operation: "make generate" writes it.
//
//go:embed openapi.json
var document []byte

// OpenAPI returns the OpenAPI description of REST.
func OpenAPI() []byte { return document }

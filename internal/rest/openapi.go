package rest

import (
	_ "embed"
	"encoding/json"
	"strconv"
	"sync"
)

// document is the OpenAPI description of REST. It is written by hand; tests keep it in line with the handlers.
//
//go:embed openapi.json
var document []byte

// examples holds a request and an answer of each operation, by operation id. A test generates them against a real server: go test
// ./test/docs -rewrite.
//
//go:embed examples.json
var examples []byte

// Example is a request to an operation and its answer; nil: no body.
type Example struct {
	Request json.RawMessage `json:"request,omitempty"`
	Status  int             `json:"status"`
	Answer  json.RawMessage `json:"answer"`
}

// Examples returns the examples of all operations, by operation id.
var Examples = sync.OnceValue(func() map[string]Example {
	var out map[string]Example
	if err := json.Unmarshal(examples, &out); err != nil {
		panic("examples.json: " + err.Error()) // it is part of the program
	}
	return out
})

// OpenAPI returns the document with its examples.
var OpenAPI = sync.OnceValue(func() []byte {
	var doc struct {
		OpenAPI    json.RawMessage                       `json:"openapi"`
		Info       json.RawMessage                       `json:"info"`
		Servers    json.RawMessage                       `json:"servers"`
		Security   json.RawMessage                       `json:"security"`
		Tags       json.RawMessage                       `json:"tags"`
		Paths      map[string]map[string]json.RawMessage `json:"paths"`
		Components json.RawMessage                       `json:"components"`
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		panic("openapi.json: " + err.Error()) // it is part of the program
	}
	for _, item := range doc.Paths {
		for method, raw := range item {
			item[method] = withExample(raw)
		}
	}
	out, err := json.Marshal(doc)
	if err != nil {
		panic("openapi.json: " + err.Error())
	}
	return out
})

// withExample adds the example of an operation to its request and its answer.
func withExample(raw json.RawMessage) json.RawMessage {
	var op map[string]any
	if json.Unmarshal(raw, &op) != nil {
		return raw // a list: parameters common to all methods of a path
	}
	id, _ := op["operationId"].(string)
	example, ok := Examples()[id]
	if !ok {
		return raw
	}
	put := func(of any, value json.RawMessage) {
		body, _ := of.(map[string]any)
		content, _ := body["content"].(map[string]any)
		if media, ok := content["application/json"].(map[string]any); ok && value != nil {
			media["example"] = value
		}
	}
	put(op["requestBody"], example.Request)
	answers, _ := op["responses"].(map[string]any)
	put(answers[strconv.Itoa(example.Status)], example.Answer)
	out, err := json.Marshal(op)
	if err != nil {
		panic("operation " + id + ": " + err.Error())
	}
	return out
}

package wire

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// jsonOptions sort maps by their keys. Tags may hold anything: what is not UTF-8 becomes U+FFFD, even if two names are then the same.
var jsonOptions = json.JoinOptions(json.Deterministic(true), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))

// JSON is an answer in JSON. Empty lists are left out.
func JSON(out *Output) []byte { return marshal(out) }

// JSONError is an error in JSON.
func JSONError(e *Error) []byte {
	return marshal(struct {
		Type    string `json:"__type"`
		Message string `json:"message"`
	}{"com.amazonaws.sqs#" + e.Shape, e.Message})
}

// QueryError is the value of the header x-amzn-query-error, by which clients of JSON learn the code of Query.
func (e *Error) QueryError() string { return e.Code + ";" + e.fault() }

// MarshalJSON writes what JSON says of an entry that was refused: not all of the error.
func (f Failed) MarshalJSON() ([]byte, error) {
	return marshal(struct {
		ID            string `json:"Id"`
		SenderFault   bool
		Code, Message string
	}{f.ID, !f.Err.Receiver, f.Err.Code, f.Err.Message}), nil
}

func marshal(v any) []byte {
	b, err := json.Marshal(v, jsonOptions)
	if err != nil {
		panic(fmt.Sprintf("an answer that JSON can't hold: %v", err))
	}
	return b
}

package wire

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// jsonOptions sorts maps by key. Tags may contain anything: invalid UTF-8 becomes U+FFFD, even if that makes two names equal.
var jsonOptions = json.JoinOptions(json.Deterministic(true), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))

// JSON encodes a response as JSON. Empty lists are left out.
func JSON(out *Output) []byte { return marshal(out) }

// JSONError encodes an error as JSON.
func JSONError(e *Error) []byte {
	return marshal(struct {
		Type    string `json:"__type"`
		Message string `json:"message"`
	}{"com.amazonaws.sqs#" + e.Shape, e.Message})
}

// QueryError returns the value of the x-amzn-query-error header, from which JSON clients learn the Query protocol's code.
func (e *Error) QueryError() string { return e.Code + ";" + e.fault() }

// MarshalJSON writes the fields that JSON has for a failed entry: not the whole error.
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

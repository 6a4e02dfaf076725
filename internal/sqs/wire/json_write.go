package wire

import (
	"fmt"
	"maps"
	"slices"

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

// QueryJSON encodes a response of the Query protocol for a client that accepts JSON: its fields in an object within an
// object, and its maps as lists.
func QueryJSON(action, requestID string, out *Output) []byte {
	var fields map[string]any
	if err := json.Unmarshal(JSON(out), &fields); err != nil {
		panic(fmt.Sprintf("an answer that is not JSON: %v", err))
	}
	answer := map[string]any{"ResponseMetadata": map[string]any{"RequestId": requestID}}
	if !resultless[action] {
		answer[action+"Result"] = listed(fields)
	}
	return marshal(map[string]any{action + "Response": answer})
}

// listed returns fields as the older JSON has them.
func listed(fields map[string]any) map[string]any {
	out := map[string]any{}
	for name, value := range fields {
		switch name {
		case "Attributes", "MessageAttributes":
			out[name] = pairsOf("Name", value)
		case "Tags":
			out[name] = pairsOf("Key", value)
		case "QueueUrls":
			out["queueUrls"] = value
		case "Messages":
			var messages []any
			for _, m := range value.([]any) {
				messages = append(messages, listed(m.(map[string]any)))
			}
			out["messages"] = messages
		default:
			out[name] = value
		}
	}
	return out
}

func pairsOf(key string, value any) (pairs []any) {
	all := value.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		pairs = append(pairs, map[string]any{key: name, "Value": all[name]})
	}
	return pairs
}

// QueryJSONError encodes an error of the Query protocol for a client that accepts JSON.
func QueryJSONError(requestID string, e *Error) []byte {
	return marshal(map[string]any{"Error": map[string]any{"Type": e.fault(), "Code": e.Code, "Message": e.queryMessage()},
		"RequestId": requestID})
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

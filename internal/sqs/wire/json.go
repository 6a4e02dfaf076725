package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// TargetPrefix begins the header X-Amz-Target; the action follows.
const TargetPrefix = "AmazonSQS."

// ReadJSON reads the body of a request in JSON. An empty body says nothing.
func ReadJSON(body []byte) (*Input, error) {
	in := new(Input)
	if len(bytes.TrimSpace(body)) == 0 {
		return in, nil
	}
	err := json.Unmarshal(body, in)
	if err == nil {
		return in, nil
	}
	if bad, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return nil, ErrSerialization.With("%s can not be converted to a value of member %s", bad.Value, orBody(bad.Field))
	}
	return nil, ErrSerialization.With("The request body is not valid JSON: %s", strings.ToValidUTF8(err.Error(), "\uFFFD"))
}

func orBody(field string) string {
	if field == "" {
		return "the request"
	}
	return field
}

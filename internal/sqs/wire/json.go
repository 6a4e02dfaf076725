package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// TargetPrefix precedes the action in the X-Amz-Target header.
const TargetPrefix = "AmazonSQS."

// ReadJSON decodes the body of a JSON request. An empty body is an empty request.
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

package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
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
	d := json.NewDecoder(bytes.NewReader(body))
	err := d.Decode(in)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			return nil, ErrSerialization.With("The request body has more than one JSON value.")
		}
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

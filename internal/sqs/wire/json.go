package wire

import (
	"bytes"
	"errors"
	"maps"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// TargetPrefix precedes the action in the X-Amz-Target header.
const TargetPrefix = "AmazonSQS."

// ReadJSON decodes the body of a JSON request. An empty body is an empty request. It refuses what would have to be
// altered or guessed at: bytes that are not UTF-8, halves of surrogate pairs, and names given twice.
func ReadJSON(body []byte) (*Input, error) {
	in := new(Input)
	if len(bytes.TrimSpace(body)) == 0 {
		return in, nil
	}
	if manyTokens(body) {
		return nil, ErrSerialization.With("The request body has more than %d names and values.", maxTokens)
	}
	request := struct {
		*Input
		NewTags map[string]string `json:"tags"` // of CreateQueue
	}{Input: in}
	err := json.Unmarshal(body, &request)
	if err == nil {
		in.Tags = both(in.Tags, request.NewTags)
		return in, nil
	}
	if bad, ok := errors.AsType[*json.SemanticError](err); ok {
		return nil, ErrSerialization.With("%s can not be converted to a value of member %s", kinds[bad.JSONKind],
			orBody(clip(bad.JSONPointer.LastToken())))
	}
	return nil, ErrSerialization.With("The request body is not valid JSON: %s", clip(err.Error())) // which may name a member
}

// kinds are the kinds of JSON values.
var kinds = map[jsontext.Kind]string{'n': "null", 'f': "bool", 't': "bool", '"': "string", '0': "number", '{': "object", '[': "array"}

// both returns the entries of two maps.
func both(a, b map[string]string) map[string]string {
	if a == nil {
		return b
	}
	maps.Copy(a, b)
	return a
}

// maxTokens bounds the names and values of a JSON request, far above what any action needs: an empty entry of a batch takes 3 bytes on the
// wire, and over 100 in memory.
const maxTokens = 4000

// manyTokens reports whether a JSON request has more than maxTokens. One that is not valid is not counted to its end.
func manyTokens(body []byte) bool {
	marks := 0 // each name and value follows one, except the first
	for _, mark := range []string{",", ":", "[", "{"} {
		marks += bytes.Count(body, []byte(mark))
	}
	if marks < maxTokens {
		return false
	}
	d, n := jsontext.NewDecoder(bytes.NewBuffer(body), jsonOptions), 0
	for n <= maxTokens {
		token, err := d.ReadToken()
		if err != nil {
			return false
		}
		if k := token.Kind(); k != '}' && k != ']' {
			n++
		}
	}
	return true
}

func orBody(field string) string {
	if field == "" {
		return "the request"
	}
	return field
}

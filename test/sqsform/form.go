// Package sqsform writes requests of the Query protocol of Amazon SQS, for tests that make each call in both forms. It
// knows what the protocol calls its fields, and nothing of any server.
package sqsform

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
)

// Query returns the form that corresponds to the JSON of an action.
func Query(action, body string) (url.Values, error) {
	var in map[string]any
	if err := json.Unmarshal([]byte(body), &in); err != nil {
		return nil, err
	}
	form := url.Values{"Action": {action}, "Version": {"2012-11-05"}}
	add(form, "", action, in)
	return form, nil
}

// flattened maps members that are lists or maps to their names in a form.
var flattened = map[string]string{"Attributes": "Attribute", "MessageAttributes": "MessageAttribute",
	"MessageSystemAttributes": "MessageSystemAttribute", "tags": "Tag", "Tags": "Tag", "TagKeys": "TagKey",
	"AttributeNames": "AttributeName", "MessageAttributeNames": "MessageAttributeName",
	"MessageSystemAttributeNames": "MessageSystemAttributeName", "AWSAccountIds": "AWSAccountId", "Actions": "ActionName"}

func add(form url.Values, prefix, action string, in map[string]any) {
	for name, value := range in {
		member, inner := flattened[name], "Value"
		key := "Name"
		if member == "Tag" {
			key = "Key"
		}
		if name == "Entries" {
			member = action + "RequestEntry"
		}
		switch v := value.(type) {
		case map[string]any:
			for i, k := range slices.Sorted(maps.Keys(v)) {
				at := fmt.Sprintf("%s%s.%d.", prefix, member, i+1)
				form.Set(at+key, k)
				if fields, ok := v[k].(map[string]any); ok {
					add(form, at+inner+".", action, fields)
				} else {
					form.Set(at+inner, fmt.Sprint(v[k]))
				}
			}
		case []any:
			for i, e := range v {
				at := fmt.Sprintf("%s%s.%d", prefix, member, i+1)
				if fields, ok := e.(map[string]any); ok {
					add(form, at+".", action, fields)
				} else {
					form.Set(at, fmt.Sprint(e))
				}
			}
		default:
			form.Set(prefix+name, fmt.Sprint(v))
		}
	}
}

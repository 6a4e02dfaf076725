package tasks

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/pawltype"
)

// Limits of the search in a payload.
const (
	maxPathDepth   = 6
	maxPathsOfTask = 100
	maxPathPayload = 64 << 10 // bytes; larger payloads are skipped
	maxPathValue   = 60       // characters in a suggested value
)

// leaf is a value in a payload that is neither an object nor a list.
type leaf struct{ path, value string }

// payloadPaths returns paths in the payloads of the newest tasks, each with a value.
func (c completer) payloadPaths(before, typed string) (all []suggestion) {
	seen := map[string]bool{}
	for _, l := range c.leaves(before) {
		if strings.HasPrefix(strings.ToLower(l.path), strings.ToLower(typed)) && !seen[l.path] {
			seen[l.path] = true
			all = append(all, suggestion{Text: "payload." + l.path + ":", Note: "such as " + format.Clip(l.value, maxPathValue),
				More: true})
		}
	}
	return all
}

// payloadValues returns the values that the newest tasks have at a path.
func (c completer) payloadValues(before, field, path, typed string) (all []suggestion) {
	var values []string
	for _, l := range c.leaves(before) {
		if l.path == path && len([]rune(l.value)) <= maxPathValue {
			values = append(values, l.value)
		}
	}
	for _, value := range matching(values, typed) {
		all = append(all, suggestion{Text: termsText([]term{{Field: field, Value: value}})})
	}
	return all
}

// leaves returns the values in the payloads of the newest tasks.
func (c completer) leaves(before string) (all []leaf) {
	c.recent(c.near(before), completeJSON, func(t *pawltype.Task) []string {
		all = append(all, leavesOf(t.Payload)...)
		return nil
	})
	return all
}

// leavesOf returns the values in a payload.
func leavesOf(payload []byte) (all []leaf) {
	if len(payload) > maxPathPayload {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	var value any
	if d.Decode(&value) != nil {
		return nil
	}
	walkLeaves("", value, maxPathDepth, &all)
	return all
}

func walkLeaves(path string, value any, depth int, to *[]leaf) {
	if len(*to) >= maxPathsOfTask || depth < 0 {
		return
	}
	under := func(key string) string {
		if path == "" {
			return key
		}
		return path + "." + key
	}
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if key != "" {
				walkLeaves(under(escapeKey(key)), value[key], depth-1, to)
			}
		}
	case []any:
		for i, item := range value[:min(len(value), 1)] { // the others are alike
			walkLeaves(under(strconv.Itoa(i)), item, depth-1, to)
		}
	default:
		if path != "" {
			*to = append(*to, leaf{path, leafText(value)})
		}
	}
}

// leafText returns a value in the syntax of a filter.
func leafText(value any) string {
	switch value := value.(type) {
	case string:
		return value
	case json.Number:
		return value.String()
	case bool:
		return strconv.FormatBool(value)
	}
	return "null"
}

// escapeKey returns a key in the syntax of a path.
func escapeKey(key string) string {
	var b strings.Builder
	for _, c := range key {
		if strings.ContainsRune(`\.:"`, c) || unicode.IsSpace(c) {
			b.WriteByte('\\')
		}
		b.WriteRune(c)
	}
	return b.String()
}

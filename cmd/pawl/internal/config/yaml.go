package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// YAMLToJSON converts a YAML document to compact JSON. Payloads belong to the caller: fields keep their order, numbers
// all their digits, even those that no machine word or float can hold, and a document that is JSON already also its
// escapes. It rejects what JSON can't express: keys that are not strings, infinity.
func YAMLToJSON(text []byte) ([]byte, error) {
	if json.Valid(text) {
		is := jsontext.Value(bytes.Clone(text))
		err := is.Compact(jsontext.AllowDuplicateNames(false))
		return is, err
	}
	var loose any // rejects documents that grow without bound through aliases
	if err := yaml.Unmarshal(text, &loose); err != nil {
		return nil, err
	}
	var exact yamlValue
	if err := yaml.Unmarshal(text, &exact); err != nil {
		return nil, err
	}
	return marshal(&exact)
}

// yamlValue is a value in a document. Its numbers keep their notation.
type yamlValue struct{ is any }

// MarshalJSON implements json.Marshaler.
func (v *yamlValue) MarshalJSON() ([]byte, error) { return marshal(v.is) }

// marshal is json.Marshal, but leaves <, > and & as they are.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// yamlObject is an object whose fields have an order.
type yamlObject struct {
	names  []string
	fields map[string]*yamlValue // a pointer can be null
}

// MarshalJSON implements json.Marshaler.
func (o yamlObject) MarshalJSON() ([]byte, error) {
	out := []byte("{")
	for i, name := range o.names {
		key, _ := marshal(name)
		value, err := marshal(o.fields[name])
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, key...), ':'), value...)
	}
	return append(out, '}'), nil
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (v *yamlValue) UnmarshalYAML(n *yaml.Node) (err error) {
	switch n.Kind {
	case yaml.MappingNode:
		var o yamlObject
		if o.names, err = textKeys(n); err != nil {
			return err
		}
		err = n.Decode(&o.fields)
		for _, name := range slices.Sorted(maps.Keys(o.fields)) {
			if !slices.Contains(o.names, name) { // merged from another object
				o.names = append(o.names, name)
			}
		}
		v.is = o
	case yaml.SequenceNode:
		items := []*yamlValue{}
		err = n.Decode(&items)
		v.is = items
	default:
		// The library treats a number that a float can't hold as a string.
		if tag := n.ShortTag(); tag == "!!int" || tag == "!!float" || n.Style == 0 && jsonNumber.MatchString(n.Value) {
			v.is, err = exactNumber(n)
		} else {
			err = n.Decode(&v.is)
		}
	}
	return err
}

// text returns the value as a flag takes it; ok is false for null and for lists and objects.
func (v *yamlValue) text() (text string, ok bool) {
	if v == nil {
		return "", false
	}
	switch is := v.is.(type) {
	case json.Number:
		if f, err := is.Float64(); err == nil && strings.ContainsAny(is.String(), "eE") { // flags take no exponents
			return strconv.FormatFloat(f, 'f', -1, 64), true
		}
		return is.String(), true
	case string, bool:
		return fmt.Sprint(is), true
	}
	return "", false
}

// textKeys returns the keys of an object in their order. It rejects those that JSON can't have.
func textKeys(object *yaml.Node) (names []string, err error) {
	for i := 0; i < len(object.Content); i += 2 {
		key := object.Content[i]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		switch key.ShortTag() {
		case "!!str":
			names = append(names, key.Value)
		case "!!merge":
		default:
			return nil, fmt.Errorf("line %d: an object key is not a string", key.Line)
		}
	}
	return names, nil
}

var (
	jsonNumber  = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)
	looseNumber = regexp.MustCompile(`^([-+]?)0*([0-9]*)\.?([0-9]*)([eE][-+]?[0-9]+)?$`)
)

// exactNumber returns a number with its original digits. YAML has more notations than JSON: 0x1f, 1_000, +1, .5.
func exactNumber(n *yaml.Node) (json.Number, error) {
	if jsonNumber.MatchString(n.Value) {
		return json.Number(n.Value), nil
	}
	text := strings.ReplaceAll(n.Value, "_", "")
	if whole, ok := new(big.Int).SetString(text, 0); ok {
		return json.Number(whole.String()), nil
	}
	p := looseNumber.FindStringSubmatch(text)
	if p == nil {
		return "", fmt.Errorf("line %d: %s is not a JSON number", n.Line, n.Value)
	}
	out := strings.TrimPrefix(p[1], "+") + orZero(p[2])
	if p[3] != "" {
		out += "." + p[3]
	}
	return json.Number(out + p[4]), nil
}

func orZero(digits string) string {
	if digits == "" {
		return "0"
	}
	return digits
}

package config

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// YAMLToJSON is a YAML document as JSON. Numbers keep all their digits, whatever a machine word or a float can hold: payloads are the
// caller's. What JSON has no form for is refused: keys that are no text, infinity.
func YAMLToJSON(text []byte) ([]byte, error) {
	var loose any // refuses documents that never end by their aliases
	if err := yaml.Unmarshal(text, &loose); err != nil {
		return nil, err
	}
	var exact exactValue
	if err := yaml.Unmarshal(text, &exact); err != nil {
		return nil, err
	}
	return json.Marshal(&exact)
}

// exactValue is a value of a document, whose numbers are as they were written.
type exactValue struct{ is any }

// MarshalJSON implements json.Marshaler.
func (v *exactValue) MarshalJSON() ([]byte, error) { return json.Marshal(v.is) }

// UnmarshalYAML implements yaml.Unmarshaler.
func (v *exactValue) UnmarshalYAML(n *yaml.Node) (err error) {
	switch n.Kind {
	case yaml.MappingNode:
		if err := textKeys(n); err != nil {
			return err
		}
		var fields map[string]*exactValue // a pointer can be null
		err = n.Decode(&fields)
		v.is = fields
	case yaml.SequenceNode:
		items := []*exactValue{}
		err = n.Decode(&items)
		v.is = items
	default:
		// To the library what a float can't hold is a text.
		if tag := n.ShortTag(); tag == "!!int" || tag == "!!float" || n.Style == 0 && jsonNumber.MatchString(n.Value) {
			v.is, err = exactNumber(n)
		} else {
			err = n.Decode(&v.is)
		}
	}
	return err
}

// text is the value as a flag has it; not ok if it is none, or several.
func (v *exactValue) text() (text string, ok bool) {
	if v == nil {
		return "", false
	}
	switch is := v.is.(type) {
	case json.Number:
		if f, err := is.Float64(); err == nil && strings.ContainsAny(is.String(), "eE") { // flags have no exponents
			return strconv.FormatFloat(f, 'f', -1, 64), true
		}
		return is.String(), true
	case string, bool:
		return fmt.Sprint(is), true
	}
	return "", false
}

// textKeys refuses an object with keys that JSON can't have.
func textKeys(object *yaml.Node) error {
	for i := 0; i < len(object.Content); i += 2 {
		key := object.Content[i]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if tag := key.ShortTag(); tag != "!!str" && tag != "!!merge" {
			return fmt.Errorf("line %d: a key of an object is not a text", key.Line)
		}
	}
	return nil
}

var (
	jsonNumber  = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)
	looseNumber = regexp.MustCompile(`^([-+]?)0*([0-9]*)\.?([0-9]*)([eE][-+]?[0-9]+)?$`)
)

// exactNumber is a number with the digits that it was written with. YAML has more forms than JSON: 0x1f, 1_000, +1, .5.
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
		return "", fmt.Errorf("line %d: %s is not a number that JSON has", n.Line, n.Value)
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

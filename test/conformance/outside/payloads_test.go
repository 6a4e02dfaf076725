package outside

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/pawlq/pawl/internal/client/spec"
	"github.com/pawlq/pawl/internal/task"
)

// payload is a value in several notations, or one that the SDKs refuse to encode. The tests of all SDKs read payloads.json.
type payload struct {
	About   string   `json:"about"`
	Equal   []string `json:"equal"`
	Inexact []string `json:"inexact"` // the languages whose programs can't hold the value
	Refused []string `json:"refused"` // in languages that can hold it
}

func payloads(t *testing.T) (out []payload) {
	t.Helper()
	b, err := os.ReadFile("payloads.json")
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil || len(out) == 0 {
		t.Fatalf("payloads.json: %d vectors, %v", len(out), err)
	}
	return out
}

// TestPayloadVectors checks that the broker takes all notations of a value for the same payload, and other values for others.
func TestPayloadVectors(t *testing.T) {
	content := func(text string) []byte { return (&task.Spec{Type: "t", Payload: []byte(text)}).AppendContent(nil) }
	values := map[string]string{}
	for _, v := range payloads(t) {
		for _, text := range v.Equal {
			if got, want := content(text), content(v.Equal[0]); !bytes.Equal(got, want) {
				t.Errorf("%s: %s is compared as %q, %s as %q", v.About, text, got, v.Equal[0], want)
			}
		}
		for _, text := range v.Equal[:min(len(v.Equal), 1)] {
			if other, taken := values[string(content(text))]; taken {
				t.Errorf("%s: %s is taken for %s", v.About, text, other)
			}
			values[string(content(text))] = text
		}
	}
}

// anyArgs are arguments of any JSON value.
type anyArgs struct{ value any }

func (anyArgs) TaskType() string               { return "t" }
func (a anyArgs) MarshalJSON() ([]byte, error) { return json.Marshal(a.value) }

// TestPayloadsOfGo checks that the Go SDK writes each value in one of the notations that the broker takes for it.
func TestPayloadsOfGo(t *testing.T) {
	for _, v := range payloads(t) {
		for _, text := range v.Equal {
			for _, exact := range []bool{true, false} {
				if !exact && len(v.Inexact) > 0 { // a float64
					continue
				}
				d := json.NewDecoder(bytes.NewReader([]byte(text)))
				if exact {
					d.UseNumber()
				}
				var value any
				if err := d.Decode(&value); err != nil {
					t.Fatal(err)
				}
				s, err := spec.Of[spec.Option](anyArgs{value}, nil)
				if err != nil || !slices.Contains(v.Equal, string(s.Payload)) {
					t.Errorf("%s: %s is sent as %s, %v", v.About, text, s.GetPayload(), err)
				}
			}
		}
	}
	for _, value := range []any{math.NaN(), math.Inf(1), []any{map[string]any{"a": math.Inf(-1)}}} {
		if s, err := spec.Of[spec.Option](anyArgs{value}, nil); err == nil {
			t.Errorf("%v is sent as %s", value, s.Payload)
		}
	}
}

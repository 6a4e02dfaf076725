package outside

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// story is something that is true of every SDK and of REST.
type story struct {
	Name  string   `json:"name"`
	Says  string   `json:"says"`
	About []string `json:"about"`
	Steps []step   `json:"steps"`
}

type step struct {
	Do      string          `json:"do"`
	With    map[string]any  `json:"with"`
	As      any             `json:"as"` // a name, or a list of names
	Members []string        `json:"members"`
	Gives   json.RawMessage `json:"gives"`
	Refused map[string]any  `json:"refused"`
	Until   bool            `json:"until"`
}

// feature is a row of the table of what each SDK has. A cell names what a program uses for it; "" means that it has none.
type feature struct {
	ID         string `json:"id"`
	What       string `json:"what"`
	Go         string `json:"go"`
	Python     string `json:"python"`
	TypeScript string `json:"typescript"`
	REST       string `json:"rest"`
	Note       string `json:"note"`  // why a cell is empty, if it always will be
	Tests      bool   `json:"tests"` // it can't be told as a story: each SDK has a test of its own
}

func (f feature) of(player string) string {
	return map[string]string{"go": f.Go, "python": f.Python, "typescript": f.TypeScript, "rest": f.REST}[player]
}

func readJSON(t testing.TB, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func readFeatures(t testing.TB) (out []feature) {
	t.Helper()
	readJSON(t, "features.json", &out)
	return out
}

// readStories reads all stories, and replaces "@" with the story's and the player's names, so that players can share a server.
func readStories(t testing.TB, player string) (out []story) {
	t.Helper()
	paths, err := filepath.Glob("stories/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no stories were found: %v", err)
	}
	for _, path := range paths {
		var raw []json.RawMessage
		readJSON(t, path, &raw)
		for _, one := range raw {
			var named struct{ Name string }
			if err := json.Unmarshal(one, &named); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			d := json.NewDecoder(bytes.NewReader(bytes.ReplaceAll(one, []byte("@"), []byte(named.Name+"-"+player))))
			d.DisallowUnknownFields()
			var s story
			if err := d.Decode(&s); err != nil {
				t.Fatalf("%s: %s: %v", path, named.Name, err)
			}
			out = append(out, s)
		}
	}
	return out
}

// lacks returns which of a story's features a player does not have.
func (s story) lacks(features []feature, player string) string {
	for _, f := range features {
		if slices.Contains(s.About, f.ID) && f.of(player) == "" {
			return f.ID
		}
	}
	return ""
}

// differs returns where got differs from want, or "".
func differs(where string, want, got any) string {
	switch want := want.(type) {
	case map[string]any:
		have, ok := got.(map[string]any)
		if !ok && got != nil {
			return fmt.Sprintf("%s: got %v, want %v", where, got, want)
		}
		for name, value := range want {
			if d := differs(where+"."+name, value, have[name]); d != "" {
				return d
			}
		}
		return ""
	case []any:
		have, _ := got.([]any)
		if len(have) != len(want) {
			return fmt.Sprintf("%s: got %v, want %v", where, got, want)
		}
		for i := range want {
			if d := differs(fmt.Sprintf("%s[%d]", where, i), want[i], have[i]); d != "" {
				return d
			}
		}
		return ""
	}
	if empty(want) && empty(got) || reflect.DeepEqual(want, got) {
		return ""
	}
	return fmt.Sprintf("%s: got %v, want %v", where, got, want)
}

func empty(v any) bool {
	return v == nil || reflect.ValueOf(v).IsZero() || reflect.DeepEqual(v, []any{}) || reflect.DeepEqual(v, map[string]any{})
}

// resolve replaces names with what they stand for.
func resolve(v any, name func(string) (any, bool)) any {
	switch v := v.(type) {
	case string:
		if known, ok := name(v); ok {
			return known
		}
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = resolve(v[i], name)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for key := range v {
			out[key] = resolve(v[key], name)
		}
		return out
	}
	return v
}

// asJSON returns v as decoded JSON.
func asJSON(v any) (out any) {
	data, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		return fmt.Sprintf("no JSON: %v", err)
	}
	return out
}

// TestStoriesAreWellFormed: names are unique and valid names of queues, and the features exist.
func TestStoriesAreWellFormed(t *testing.T) {
	told := map[string]bool{}
	features := readFeatures(t)
	seen := map[string]bool{}
	for _, s := range readStories(t, "x") {
		if seen[s.Name] || s.Name == "" || strings.Trim(s.Name, "abcdefghijklmnopqrstuvwxyz-0123456789") != "" {
			t.Errorf("the name %q is used twice, or has characters other than a-z, 0-9 and -", s.Name)
		}
		seen[s.Name] = true
		if len(s.About) == 0 || s.Says == "" {
			t.Errorf("%s: says and about are required", s.Name)
		}
		for _, id := range s.About {
			told[id] = true
			if !slices.ContainsFunc(features, func(f feature) bool { return f.ID == id }) {
				t.Errorf("%s: about has %q, which is not in features.json", s.Name, id)
			}
		}
	}
	for _, f := range features {
		if told[f.ID] == f.Tests {
			t.Errorf("feature %q: told in a story: %v, but marked as tested without: %v", f.ID, told[f.ID], f.Tests)
		}
	}
}

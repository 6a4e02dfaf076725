package apijson

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

func FuzzFilter(f *testing.F) {
	f.Add("queue=a&state=ready&created_after=2000-01-01T00:00:00Z")
	f.Fuzz(func(t *testing.T, s string) {
		q, err := url.ParseQuery(s)
		if err != nil {
			return
		}
		_ = Of((&pawlv1.Filter{}).ProtoReflect().Descriptor()).FromQuery((&pawlv1.Filter{}).ProtoReflect(), q)
	})
}

// Strings survive quoting unchanged.
func FuzzQuoted(f *testing.F) {
	f.Add("a\"b\\c\n\x00\xffé\u2028")
	f.Fuzz(func(t *testing.T, s string) {
		var got string
		if err := json.Unmarshal(appendQuoted(nil, s), &got); err != nil || got != strings.ToValidUTF8(s, "\ufffd") &&
			strings.ToValidUTF8(s, "") == s {
			t.Errorf("%q was quoted as %s (%v)", s, appendQuoted(nil, s), err)
		}
	})
}

// The JSON reader accepts the same input as the library.
func FuzzReader(f *testing.F) {
	f.Add(`{"type":"a","payload":[1,{"x":null}],"delay":"1s","tags":["\u00e9"],"max_attempts":3}`)
	f.Fuzz(func(t *testing.T, body string) {
		spec := &pawlv1.TaskSpec{}
		if read(spec, body) != nil {
			return
		}
		var want map[string]any
		if err := json.Unmarshal([]byte(body), &want); err != nil && strings.TrimSpace(body) != "" {
			t.Errorf("accepted %q, which is not a JSON object: %v", body, err)
		}
		if typ, ok := want["type"].(string); ok && typ != spec.Type {
			t.Errorf("type in %q = %q, want %q", body, spec.Type, typ)
		}
	})
}

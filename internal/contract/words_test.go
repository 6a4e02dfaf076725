package contract

import (
	"testing"
)

// JSON may be named with its charset, as many HTTP clients do.
func TestIsJSON(t *testing.T) {
	for of, want := range map[string]bool{"": true, "application/json": true, "application/json; charset=utf-8": true,
		"application/json;charset=UTF-8": true, "Application/JSON": true, "application/json; profile=x": true,
		"application/json; charset=utf-16": false, "application/json; charset": false, "application/jsonl": false, "text/json": false,
		"application/vnd.api+json": false, "json": false, " ": false} {
		if got := IsJSON(of); got != want {
			t.Errorf("IsJSON(%q) = %t", of, got)
		}
		stored := of
		if want && of != "" {
			stored = "application/json"
		}
		if got := ContentType(of); got != stored {
			t.Errorf("ContentType(%q) = %q, want %q", of, got, stored)
		}
	}
}

package sqs

import (
	"testing"

	"github.com/pawlq/pawl/internal/task"
)

// FuzzHandle: what parses is the handle of what it names.
func FuzzHandle(f *testing.F) {
	id, token := task.NewID(3, 1, 2), task.Token{Epoch: 1, Fence: 300, Nonce: 7}
	f.Add(handle("q", id, token))
	f.Fuzz(func(t *testing.T, s string) {
		gotID, gotToken, err := parseHandle("q", s)
		if err == nil && handle("q", gotID, gotToken) != s {
			t.Fatalf("%q was parsed as the handle %q", s, handle("q", gotID, gotToken))
		}
	})
}

func TestHandle(t *testing.T) {
	id, token := task.NewID(3, 1, 2), task.Token{Epoch: 1, Fence: 300, Nonce: 7}
	s := handle("q", id, token)
	if gotID, gotToken, err := parseHandle("q", s); err != nil || gotID != id || gotToken != token {
		t.Errorf("parseHandle(%s) = %v, %v, %v", s, gotID, gotToken, err)
	}
	for _, bad := range []string{"", s[:len(s)-1], s + "AA", "B" + s[1:]} {
		if _, _, err := parseHandle("q", bad); err == nil {
			t.Errorf("parseHandle accepted %q", bad)
		}
	}
	if _, _, err := parseHandle("other", s); err == nil {
		t.Error("parseHandle accepted the handle of another queue")
	}
}

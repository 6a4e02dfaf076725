package ui_test

import (
	"testing"
)

// TestLook takes pictures of every page, for people to look at.
func TestLook(t *testing.T) {
	b := startBrowser(t)
	w := startWorld(t, "")
	w.seed(t)
	for _, p := range []string{"/", "/queues", "/queues/mail", "/queues/billing", "/tasks", "/dead", "/poison", "/schedules", "/schedules/nightly-report", "/groups", "/operations", "/audit", "/cluster", "/settings", "/enqueue", "/queues/mail/settings"} {
		name := p[1:]
		if name == "" {
			name = "overview"
		}
		name = replace(name)
		b.visit(w.url + p)
		b.shoot(name)
	}
	_, trouble := b.noted()
	for _, s := range trouble {
		t.Error(s)
	}
}

func replace(s string) string {
	out := []byte(s)
	for i := range out {
		if out[i] == '/' {
			out[i] = '-'
		}
	}
	return string(out)
}

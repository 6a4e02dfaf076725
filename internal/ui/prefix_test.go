package ui_test

import (
	"strings"
	"testing"
)

// TestUncleanPathsStayBelowPrefix: whether or not a proxy strips the prefix, nothing leads the browser out of it, or to another host.
func TestUncleanPathsStayBelowPrefix(t *testing.T) {
	w := startWorld(t, "/ops")
	for path, want := range map[string]string{
		"/ops": "/ops/", "//ops": "/ops/", "/ops?x=1": "/ops/?x=1", "/./ops//": "/ops/",
		"/ops//queues": "/ops/queues", "/ops/./queues/": "/ops/queues/", "/ops//queues?like=a%2F%2Fb": "/ops/queues?like=a%2F%2Fb",
		"/ops/x/../queues": "/ops/queues", "/ops//in/shop//queues": "/ops/in/shop/queues", "/ops//queues/a%2Fb": "/ops/queues/a%2Fb",
		"/ops//queues/a%20b%25": "/ops/queues/a%20b%25",
		// without the prefix, or leading out of it
		"//queues": "/ops/queues", "/queues/../tasks": "/ops/tasks", "/ops/../queues": "/ops/queues", "/../ops/queues": "/ops/queues",
		"//evil.example/x": "/ops/evil.example/x", "/ops//evil.example": "/ops/evil.example", "/ops///evil.example/..": "/ops/",
		"/opsx//a": "/ops/opsx/a", `/ops//\evil.example`: "/ops/%5Cevil.example", "/ops//api/v1/tasks": "/ops/api/v1/tasks",
		"/api//v1/tasks?limit=3": "/ops/api/v1/tasks?limit=3",
	} {
		for _, method := range []string{"GET", "POST"} {
			resp, body := w.send(t, method, path, "")
			if got := resp.Header.Get("Location"); resp.StatusCode != 307 || got != want {
				t.Errorf("%s %s has status %d and redirects to %q, want %q", method, path, resp.StatusCode, got, want)
			}
			if h := resp.Header; h.Get("X-Content-Type-Options") != "nosniff" ||
				h.Get("Content-Security-Policy") != "default-src 'none'; frame-ancestors 'none'" {
				t.Errorf("%s %s has the headers %v: %s", method, path, h, body)
			}
		}
	}
	for _, path := range []string{"/ops/", "/ops/queues", "/ops/static", "/ops/in/default/static", "/ops/queues/", "/queues",
		"/ops/in/default", "/ops/%6fps/x", "/%6fps/queues", "/ops/queues/a%2F%2Fb", "/ops/healthz", "/ops/metrics", "/ops/api/v1/nothing"} {
		resp, _ := w.get(t, path)
		if to := resp.Header.Get("Location"); to != "" && !strings.HasPrefix(to, "/ops/") {
			t.Errorf("%s redirects to %q, outside the prefix", path, to)
		}
		if resp.Header.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(path, "api") && !strings.Contains(path, "health") &&
			!strings.Contains(path, "metrics") && resp.Header.Get("Content-Security-Policy") == "" {
			t.Errorf("%s has the headers %v", path, resp.Header)
		}
	}
}

// TestUncleanPathsWithoutPrefix: untidy paths are redirected as net/http does.
func TestUncleanPathsWithoutPrefix(t *testing.T) {
	w := startWorld(t, "")
	for path, want := range map[string]string{"//": "/", "//queues": "/queues", "//evil.example/x": "/evil.example/x",
		"/a/../..//queues/?x": "/queues/?x", "/in/shop//queues": "/in/shop/queues", "//api/v1/tasks": "/api/v1/tasks"} {
		resp, _ := w.get(t, path)
		if got := resp.Header.Get("Location"); resp.StatusCode != 307 || got != want ||
			resp.Header.Get("X-Content-Type-Options") != "nosniff" || resp.Header.Get("Content-Security-Policy") == "" {
			t.Errorf("%s has status %d and redirects to %q, want %q: %v", path, resp.StatusCode, got, want, resp.Header)
		}
	}
}

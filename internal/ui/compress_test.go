package ui_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl"
)

func TestPagesAreCompressed(t *testing.T) {
	w := startWorld(t, "")
	w.enqueue(t, 100, func(int) pawl.Item { return job("a", `{}`, pawl.In(time.Hour)) })
	for _, c := range []struct {
		name    string
		headers []string
		zipped  bool
	}{
		{"a browser's", []string{"Accept-Encoding", "gzip, deflate, br", "Sec-Fetch-Site", "none"}, true},
		{"a page's own", []string{"Accept-Encoding", "br;q=1, gzip;q=0.5", "Sec-Fetch-Site", "same-origin", "HX-Request", "true"}, true},
		{"a program's", []string{"Accept-Encoding", "gzip"}, true},
		{"one of another site's", []string{"Accept-Encoding", "gzip", "Sec-Fetch-Site", "cross-site"}, false},
		{"one that reads no gzip", []string{"Accept-Encoding", "br"}, false},
		{"one that refuses gzip", []string{"Accept-Encoding", "br, gzip;q=0.0"}, false},
		{"one that says nothing", []string{"Accept-Encoding", "identity"}, false},
	} {
		resp, body := w.get(t, "/tasks", c.headers...)
		if got := resp.Header.Get("Content-Encoding") == "gzip"; got != c.zipped || !strings.Contains(resp.Header.Get("Vary"),
			"Accept-Encoding") {
			t.Errorf("%s request: compressed %t, want %t, with Vary %q", c.name, got, c.zipped, resp.Header.Get("Vary"))
		}
		if !c.zipped {
			continue
		}
		z, err := gzip.NewReader(strings.NewReader(body))
		must(t, err)
		plain, err := io.ReadAll(z)
		must(t, err)
		if !bytes.Contains(plain, []byte("data-row")) || len(body) > len(plain)/4 {
			t.Errorf("%s request: %d bytes were compressed to %d, want a page at most a quarter as large", c.name, len(plain), len(body))
		}
	}
}

// TestSecretsAreNotCompressed: the length of a response reveals nothing about a secret in it.
func TestSecretsAreNotCompressed(t *testing.T) {
	w := startWorld(t, "")
	form := url.Values{"name": {"robot"}, "roles": {"observe"}, "queues": {"*"}}.Encode()
	for _, more := range [][]string{nil, {"HX-Request", "true"}} {
		resp, body := w.send(t, "POST", "/new-token", form, append([]string{"Content-Type", "application/x-www-form-urlencoded",
			"Sec-Fetch-Site", "same-origin", "Accept-Encoding", "gzip"}, more...)...)
		if resp.StatusCode != 200 || resp.Header.Get("Content-Encoding") != "" || !strings.Contains(body, "pawl_") {
			t.Errorf("creating a token: status %d, Content-Encoding %q, want an uncompressed page with the token", resp.StatusCode,
				resp.Header.Get("Content-Encoding"))
		}
		form = strings.Replace(form, "robot", "robot-2", 1)
	}
}

func TestUnchangedRefreshIsShort(t *testing.T) {
	w := startWorld(t, "")
	enqueue := func() {
		w.enqueue(t, 1, func(int) pawl.Item { return job("a", `{}`, pawl.In(time.Hour)) })
	}
	enqueue()
	ask := func(tag string) (*http.Response, string) {
		return w.get(t, "/tasks", "HX-Request", "true", "If-None-Match", tag)
	}
	first, body := ask("")
	tag := first.Header.Get("ETag")
	if tag == "" || !strings.Contains(body, "<time") {
		t.Fatalf("a refresh has the ETag %q, want one", tag)
	}
	if resp, body := ask(tag); resp.StatusCode != http.StatusNotModified || body != "" {
		t.Errorf("without changes: status %d, %d bytes, want 304 and no body", resp.StatusCode, len(body))
	}
	enqueue()
	if resp, _ := ask(tag); resp.StatusCode != 200 || resp.Header.Get("ETag") == tag {
		t.Errorf("after a change: status %d, ETag %q, want 200 and a new one", resp.StatusCode, resp.Header.Get("ETag"))
	}
	if resp, body := w.get(t, "/tasks", "If-None-Match", tag); resp.StatusCode != 200 || resp.Header.Get("ETag") != "" ||
		!strings.Contains(body, "<!doctype") {
		t.Errorf("a whole page has the ETag %q, want none", resp.Header.Get("ETag"))
	}
}

package listen

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func TestHosts(t *testing.T) {
	h, err := ParseHosts([]string{"Pawl", "tasks.example.com.", ".Apps.example.com", "10.0.0.7", "fe80::7"})
	if err != nil {
		t.Fatal(err)
	}
	h = h.With("N1.example.com:7295").With("[::1]:7295").With(":7295").With("nothing")
	for host, want := range map[string]bool{
		"127.0.0.1": true, "127.0.0.1:7295": true, "127.0.0.1.": true, "8.8.8.8:80": true, "10.0.0.7:1": true,
		"[::1]:7295": true, "[::1]": true, "::1": true, "[fe80::1%eth0]:7295": true, "[::ffff:127.0.0.1]:1": true,
		"localhost": true, "localhost:7295": true, "LocalHost.:7295": true, "pawl.localhost": true, "a.b.localhost.:1": true,
		"pawl": true, "PAWL:7295": true, "pawl.": true, "tasks.example.com": true, "tasks.example.com.:443": true,
		"n1.example.com:7295": true, "apps.example.com": true, "a.apps.example.com:1": true, "a.b.APPS.example.com": true,
		"": true, // HTTP/1.0

		"evil.example": false, "evil.example:7295": false, "127.0.0.1.evil.example": false, "localhost.evil.example:7295": false,
		"evillocalhost": false, "pawl.evil.example": false, "evil.pawl": false, "xtasks.example.com": false, "a.tasks.example.com": false,
		"eviapps.example.com": false, "example.com": false, "2130706433": false, "0x7f.1": false, "127.1": false, "[evil.example]:1": false,
		"evil.example:1:2": false, "127.0.0.1,evil.example": false, ".": false, "..localhost.evil": false, "evil.example:localhost": false,
		"localhost]": false, "localhost\x00.evil.example": false,
	} {
		if got := h.Have(host); got != want {
			t.Errorf("Have(%q) = %v, want %v", host, got, want)
		}
	}
	if (Hosts{}).Have("pawl") {
		t.Error("an empty list of hosts has a host")
	}
}

func TestBadHosts(t *testing.T) {
	for _, bad := range []string{"", " ", ".", "*", "*.example.com", "http://pawl", "pawl:7295", "pawl/x", "a..b", "a b", "-a", "pöwl",
		"..example.com", "[::1]", strings.Repeat("a.", 127) + "com"} {
		if _, err := ParseHosts([]string{"good.example.com", bad}); err == nil || !strings.Contains(err.Error(),
			fmt.Sprintf("%q is not a name such as", bad)) {
			t.Errorf("ParseHosts with %q: %v", bad, err)
		}
	}
	if _, err := ParseHosts(make([]string, maxHosts+1)); err == nil {
		t.Error("ParseHosts accepted too many names")
	}
}

// A handler without access control is reachable only by addresses and localhost, whatever other names the server has.
func TestOnlyLocal(t *testing.T) {
	h := OnlyLocal(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "profile") }))
	for host, want := range map[string]int{"127.0.0.1:7297": 200, "[::1]:7297": 200, "localhost:7297": 200, "evil.example:7297": 421,
		"n1": 421} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, stray("GET", "/debug/pprof/cmdline", host))
		if w.Code != want || strings.Contains(w.Body.String(), "profile") != (want == 200) ||
			w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("request to host %s: status %d, headers %v, body %s", host, w.Code, w.Header(), w.Body)
		}
	}
}

// A name may be as long as DNS allows.
func TestLongestHost(t *testing.T) {
	for n, good := range map[int]bool{maxHostName: true, maxHostName + 1: false} {
		name := strings.Repeat("a.", n/2)[:n-1] + "a"
		if _, err := ParseHosts([]string{name}); (err == nil) != good {
			t.Errorf("ParseHosts with a name of %d bytes: %v", len(name), err)
		}
	}
	for n, good := range map[int]bool{maxHosts: true, maxHosts + 1: false} {
		if _, err := ParseHosts(slices.Repeat([]string{"a"}, n)); (err == nil) != good {
			t.Errorf("ParseHosts with %d names: %v", n, err)
		}
	}
}

// stray returns a request as a page sends it whose host name resolves to this address.
func stray(method, path, host string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(`{"type":"x","queue":"stolen"}`))
	r.Host = host
	r.Header.Set("Origin", "http://"+host)
	return r
}

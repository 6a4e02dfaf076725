package node

import (
	"context"
	"net"
	"net/http"
	"testing"

	"google.golang.org/grpc/test/bufconn"
)

// A node accepts the host that clients are given, and the configured names; its profiles accept none, whether or not calls need a
// token.
func TestNamesOfANode(t *testing.T) {
	hosts, err := ParseHosts([]string{"pawl.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tokens := range []TokenMode{TokensNever, TokensAlways} {
		debug := bufconn.Listen(1 << 10)
		s := start(t, Config{InMemory: true, Hosts: hosts, APIAddress: "n1.example.com:7295", Debug: debug, Tokens: tokens,
			Profiles: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})})
		misdirected := http.StatusMisdirectedRequest
		if tokens == TokensAlways {
			misdirected = http.StatusUnauthorized
		}
		for host, want := range map[string][2]int{"localhost": {200, 200}, "127.0.0.1:7295": {200, 200}, "n1.example.com:7295": {200, 421},
			"pawl.example.com": {200, 421}, "evil.example": {misdirected, 421}} {
			if tokens == TokensAlways {
				want[0] = misdirected
			}
			if got := statusAt(t, s.pipe, host, "/api/v1/tasks"); got != want[0] {
				t.Errorf("tokens %v: by %s a node answers %d, want %d", tokens, host, got, want[0])
			}
			for _, path := range []string{"/debug/pprof/cmdline", "/metrics"} {
				if got := statusAt(t, debug, host, path); got != want[1] {
					t.Errorf("tokens %v: by %s its profiles answer %d, want %d", tokens, host, got, want[1])
				}
			}
		}
	}
}

// statusAt returns the status of a GET with the given Host.
func statusAt(t *testing.T, l *bufconn.Listener, host, path string) int {
	t.Helper()
	web := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.DialContext(ctx) },
		DisableKeepAlives: true}
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := web.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

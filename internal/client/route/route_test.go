package route

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Addresses in a map must each be of one node, and need TLS like those given to Dial.
func TestAdvertisedAddresses(t *testing.T) {
	for _, x := range []struct {
		addr string
		cfg  Config
		ok   bool
	}{
		{"10.0.0.1:7295", Config{}, false}, {"10.0.0.1:7295", Config{Plaintext: true}, true}, {"10.0.0.1:7295", Config{TLS: &tls.Config{}},
			true},
		{"127.0.0.1:7295", Config{}, true}, {"[::1]:7295", Config{}, true}, {"localhost.evil.com:7295", Config{}, false},
		{"unix:/x:1", Config{TLS: &tls.Config{}}, false}, {"n1", Config{TLS: &tls.Config{}}, false},
		{":7295", Config{TLS: &tls.Config{}}, false}, {"n1:0", Config{TLS: &tls.Config{}}, false}, {"n1:http", Config{TLS: &tls.Config{}},
			false}, {"[::]:1", Config{}, false},
		{"user@n1:1", Config{TLS: &tls.Config{}}, false}, {"n1:70000", Config{TLS: &tls.Config{}}, false},
		{"a-z.A_Z:1", Config{TLS: &tls.Config{}}, true}, {"n{1:1", Config{TLS: &tls.Config{}}, false}, {"n[:1", Config{TLS: &tls.Config{}},
			false}, {"n@:1", Config{TLS: &tls.Config{}}, false},
		{"n`:1", Config{TLS: &tls.Config{}}, false}, {"n/1:1", Config{TLS: &tls.Config{}}, false},
		{"09:65535", Config{TLS: &tls.Config{}}, true}, {"ö:1", Config{TLS: &tls.Config{}}, false}, {strings.Repeat("n", 298) + ":1",
			Config{TLS: &tls.Config{}}, true},
		{strings.Repeat("n", 299) + ":1", Config{TLS: &tls.Config{}}, false},
	} {
		conn, err := x.cfg.connectTo(x.addr)
		if (err == nil) != x.ok {
			t.Errorf("connectTo(%q) with %+v: %v, want ok %v", x.addr, x.cfg, err, x.ok)
		}
		if err == nil {
			_ = conn.Close()
		}
	}
}

// The addresses that Dial accepts, and their targets: all of a list over TLS or none of it, and in plaintext only on this machine.
func TestTargets(t *testing.T) {
	list := func(n int) string { return strings.TrimSuffix(strings.Repeat("localhost:1,", n), ",") }
	for _, x := range []struct {
		addr, want string // "": refused
		cfg        Config
		tls        bool
	}{
		{"localhost", "dns:///localhost:7295", Config{}, false},
		{"localhost:1", "dns:///localhost:1", Config{}, false},
		{"127.0.0.1", "dns:///127.0.0.1:7295", Config{}, false},
		{"[::1]", "dns:///[::1]:7295", Config{}, false},
		{"[::1]:1", "dns:///[::1]:1", Config{}, false},
		{"n1:1", "", Config{}, false},
		{"n1:1", "dns:///n1:1", Config{Plaintext: true}, false},
		{"n1:1", "dns:///n1:1", Config{TLS: &tls.Config{}}, true},
		{"n1:1", "passthrough:///n1:1", Config{Dialer: bare}, false},
		{"", "", Config{}, false}, {":1", "", Config{Plaintext: true}, false}, {"n 1:1", "", Config{Plaintext: true}, false},
		{"n1:1/x", "", Config{Plaintext: true}, false}, {"n/1:1", "", Config{Plaintext: true}, false}, {"unix:///run/pawl.sock",
			"unix:///run/pawl.sock", Config{}, false},
		{"https://n1:1", "dns:///n1:1", Config{}, true},
		{" https://n1:1 ", "dns:///n1:1", Config{}, true},
		{"https://n1", "", Config{}, false},
		{"https://n1:1/x", "", Config{}, false},
		{"https://n1", "passthrough:///n1", Config{Dialer: bare}, true},
		{"localhost:1,localhost:2", "pawl:///nodes", Config{}, false},
		{"https://n1:1, https://n2:1", "pawl:///nodes", Config{}, true},
		{"https://n1:1,n2:1", "", Config{}, false},
		{"n2:1,https://n1:1", "", Config{}, false},
		{"localhost:1,n2:1", "", Config{}, false},
		{"localhost:1,unix:///x", "", Config{}, false},
		{"n1,n2", "pawl:///nodes", Config{Dialer: bare}, false},
		{"n1:1,unix:///x", "", Config{Dialer: bare}, false},
		{list(32), "pawl:///nodes", Config{}, false},
		{list(33), "", Config{}, false},
	} {
		got, opts, err := x.cfg.targets(x.addr)
		if got != x.want || (err == nil) != (x.want != "") || err == nil && (x.cfg.TLS != nil) != x.tls ||
			(len(opts) > 0) != (got == "pawl:///nodes") {
			t.Errorf("targets(%.40q) = %q with %d options, %v, TLS %v, want %q", x.addr, got, len(opts), err, x.cfg.TLS != nil, x.want)
		}
	}
}

func bare(context.Context, string) (net.Conn, error) { return nil, errors.ErrUnsupported }

func TestAddress(t *testing.T) {
	for addr, want := range map[string]string{"": "|", "n1": "n1|7295", "n1:1": "n1|1", " https://n1:1": "n1|1", "[::1]": "::1|7295",
		"[::1]:1": "::1|1", "unix:///run/pawl.sock": "/run/pawl.sock|", "unix:pawl.sock": "pawl.sock|", "n1:1,n2:1": "|"} {
		if host, port := Address(addr); host+"|"+port != want {
			t.Errorf("Address(%q) = %s|%s, want %s", addr, host, port, want)
		}
	}
}

// A server without plaintext HTTP/2 is detected by its first byte.
func TestPlainConn(t *testing.T) {
	for what, x := range map[string]struct {
		says string
		want error
	}{"HTTP/2": {"\x00\x00\x12", nil}, "TLS": {"\x15\x03", errNotPlain}} {
		ours, theirs := net.Pipe()
		c := &plainConn{Conn: ours}
		go func() {
			_, _ = theirs.Write([]byte(x.says))
			_, _ = theirs.Write([]byte("later"))
		}()
		b := make([]byte, 5)
		if n, err := c.Read(b); err != x.want || n != len(x.says) && err == nil {
			t.Errorf("%s: Read = %d bytes, %v", what, n, err)
		}
		if n, err := c.Read(b); err != nil || n != 5 {
			t.Errorf("%s: second Read = %d bytes, %v", what, n, err)
		}
		_, _ = ours.Close(), theirs.Close()
	}
}

// take makes a client load a map, and returns how much of it is kept.
func take(m *pawlv1.GetMapResponse) (nodes, leaders int) {
	c := newTopology()
	c.update(m, true)
	return len(c.addrs), len(c.leaders)
}

// Whatever a map contains, the client keeps a bounded part of it.
func TestMapIsBounded(t *testing.T) {
	m := &pawlv1.GetMapResponse{Node: "n1", ClusterId: "c1"}
	for i := range 10_000 {
		m.Nodes = append(m.Nodes, &pawlv1.MapNode{Name: fmt.Sprint("n", i), ApiAddress: "n:1"})
		m.Shards = append(m.Shards, &pawlv1.MapShard{Shard: uint32(i), Leader: "n1"}, &pawlv1.MapShard{Shard: uint32(i), Leader: "nobody"})
	}
	m.Nodes, m.Shards = append(m.Nodes, nil), append(m.Shards, nil)
	if nodes, leaders := take(m); nodes != 64 || leaders != 4096 {
		t.Errorf("%d nodes and %d leaders were kept, want 64 and 4096", nodes, leaders)
	}
	m.ClusterId = strings.Repeat("c", 300)
	if nodes, leaders := take(m); nodes+leaders != 0 {
		t.Errorf("with a cluster id of 300 bytes, %d nodes and %d leaders were kept, want none", nodes, leaders)
	}
}

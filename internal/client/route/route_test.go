package route

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Addresses of a map must be of one node each, and need TLS as those of Dial do.
func TestAdvertisedAddresses(t *testing.T) {
	for _, x := range []struct {
		addr string
		cfg  Config
		ok   bool
	}{
		{"10.0.0.1:7295", Config{}, false}, {"10.0.0.1:7295", Config{Plaintext: true}, true}, {"10.0.0.1:7295", Config{TLS: &tls.Config{}}, true},
		{"127.0.0.1:7295", Config{}, true}, {"[::1]:7295", Config{}, true}, {"localhost.evil.com:7295", Config{}, false},
		{"unix:/x:1", Config{TLS: &tls.Config{}}, false}, {"n1", Config{TLS: &tls.Config{}}, false}, {":7295", Config{TLS: &tls.Config{}}, false},
		{"n1:0", Config{TLS: &tls.Config{}}, false}, {"n1:http", Config{TLS: &tls.Config{}}, false}, {"[::]:1", Config{}, false},
		{"user@n1:1", Config{TLS: &tls.Config{}}, false}, {"n1:70000", Config{TLS: &tls.Config{}}, false},
	} {
		conn, err := x.cfg.connectTo(x.addr)
		if (err == nil) != x.ok {
			t.Errorf("%q with %+v: %v, want ok %v", x.addr, x.cfg, err, x.ok)
		}
		if err == nil {
			_ = conn.Close()
		}
	}
}

// take has a client believe a map, and says how much of it is kept.
func take(m *pawlv1.GetMapResponse) (nodes, leaders int) {
	c := newTopology()
	c.update(m, true)
	return len(c.addrs), len(c.leaders)
}

// Whatever a map says, what is kept of it is bounded.
func TestAMapIsBounded(t *testing.T) {
	m := &pawlv1.GetMapResponse{Node: "n1", ClusterId: "c1"}
	for i := range 10_000 {
		m.Nodes = append(m.Nodes, &pawlv1.MapNode{Name: fmt.Sprint("n", i), ApiAddress: "n:1"})
		m.Shards = append(m.Shards, &pawlv1.MapShard{Shard: uint32(i), Leader: "n1"}, &pawlv1.MapShard{Shard: uint32(i), Leader: "nobody"})
	}
	m.Nodes, m.Shards = append(m.Nodes, nil), append(m.Shards, nil)
	if nodes, leaders := take(m); nodes != 64 || leaders != 4096 {
		t.Errorf("%d nodes and %d leaders are kept", nodes, leaders)
	}
	m.ClusterId = strings.Repeat("c", 300)
	if nodes, leaders := take(m); nodes+leaders != 0 {
		t.Errorf("of a cluster with a name of 300 bytes %d nodes and %d leaders are kept", nodes, leaders)
	}
}

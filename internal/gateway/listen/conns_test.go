package listen

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"testing"
)

// connFrom is a connection from an address.
type connFrom struct {
	net.Conn
	from string
}

func (c connFrom) RemoteAddr() net.Addr {
	a, err := net.ResolveTCPAddr("tcp", c.from)
	if err != nil {
		panic(err)
	}
	return a
}

// One address can't take all connections, whatever its ports or its addresses within a network. Loopback addresses have no limit.
func TestConnectionsOfOneAddress(t *testing.T) {
	d := newAcceptor(Config{MaxConns: 100, MaxConnsPerAddress: 2})
	p := newConnQueue(nil, d.closed)
	open := func(from string) net.Conn {
		here, there := net.Pipe()
		t.Cleanup(func() { here.Close(); there.Close() })
		d.admit(connFrom{there, from}, p, p)
		return here
	}
	count := func() int {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.conns)
	}
	for i, c := range []struct {
		from string
		want int
	}{{"192.0.2.1:1", 1}, {"192.0.2.1:2", 2}, {"192.0.2.1:3", 2}, {"192.0.2.2:3", 3}, {"[2001:db8::1]:1", 4}, {"[2001:db8::2]:1", 5},
		{"[2001:db8::3]:1", 5}, {"[::ffff:192.0.2.1]:9", 5}, {"127.0.0.1:1", 6}, {"127.0.0.1:2", 7}, {"127.0.0.1:3", 8}, {"[::1]:3", 9}} {
		if open(c.from); count() != c.want {
			t.Errorf("after connection %d, from %s: %d connections, want %d", i, c.from, count(), c.want)
		}
	}
	d.mu.Lock()
	var one *sniffedConn
	for g := range d.conns {
		if g.address == netip.MustParsePrefix("192.0.2.1/32") {
			one = g
		}
	}
	d.mu.Unlock()
	_ = one.Close()
	_ = one.Close()
	two := open("192.0.2.9:1")
	d.mu.Lock()
	for g := range d.conns {
		if g.address == netip.MustParsePrefix("192.0.2.9/32") {
			one = g
		}
	}
	known := len(d.from)
	d.mu.Unlock()
	if _ = one.Close(); len(d.from) != known-1 {
		t.Errorf("%d addresses are tracked, after %d, although one of them has no connection left", len(d.from), known)
	}
	_ = two.Close()
	if open("192.0.2.1:4"); count() != 9 {
		t.Errorf("after one of 9 connections was closed and another opened: %d connections", count())
	}
	if open("192.0.2.1:5"); count() != 9 {
		t.Errorf("after one of 9 connections was closed and two were opened: %d connections", count())
	}
	d.mu.Lock()
	if n := d.from[netip.Prefix{}]; n != 0 {
		t.Errorf("%d loopback connections are counted by address", n)
	}
	d.mu.Unlock()
	d.close()
	few := newAcceptor(Config{MaxConns: 2, MaxConnsPerAddress: 9})
	for i := range 3 {
		_, there := net.Pipe()
		few.admit(connFrom{there, fmt.Sprintf("192.0.2.%d:1", i)}, p, p)
		few.mu.Lock()
		if n := len(few.conns); n != min(i+1, 2) {
			t.Errorf("%d connections were accepted after %d attempts, want at most 2", n, i+1)
		}
		few.mu.Unlock()
	}
	few.close()
	here, there := net.Pipe()
	d.admit(connFrom{there, "192.0.2.1:9"}, p, p)
	if _, err := here.Read(make([]byte, 1)); err == nil {
		t.Error("a connection was accepted after the acceptor closed")
	}
}

// These limits are part of what callers rely on. Changing one must be deliberate.
func TestLimitsAreStable(t *testing.T) {
	for what, c := range map[string][2]int{
		"streams":                   {maxStreams, 2_000},
		"hosts":                     {maxHosts, 100},
		"a host":                    {maxHostName, 253},
		"connections":               {defaultMaxConns, 20_000},
		"connections of an address": {defaultMaxConnsPerAddress, 5_000},
	} {
		if c[0] != c[1] {
			t.Errorf("limit of %s = %d, want %d", what, c[0], c[1])
		}
	}
}

func TestInProcessAddresses(t *testing.T) {
	if a := InProcessAddr("h"); a.Network() != "inside" || a.String() != "h" || (inProcessConn{from: a}).RemoteAddr() != a {
		t.Errorf("address = %s of network %s", a, a.Network())
	}
}

// Connection limits that are not set get their defaults, and others stay.
func TestLimitsHaveDefaults(t *testing.T) {
	for _, c := range []struct{ said, want [2]int }{{[2]int{}, [2]int{20_000, 5_000}}, {[2]int{7, 3}, [2]int{7, 3}}} {
		d := New(Config{Logger: slog.New(slog.DiscardHandler), MaxConns: c.said[0], MaxConnsPerAddress: c.said[1]}, nil, nil).acceptor
		if got := [2]int{d.max, d.perAddress}; got != c.want {
			t.Errorf("limits %v became %v, want %v", c.said, got, c.want)
		}
	}
}

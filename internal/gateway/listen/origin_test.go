package listen

import (
	"net/netip"
	"testing"
)

func TestSourceOfWrongTokens(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1", "192.0.2.1", true}, {"192.0.2.1", "192.0.2.2", false}, {"::ffff:192.0.2.1", "192.0.2.1", true},
		{"2001:db8:0:1::1", "2001:db8:0:1:ffff::2", true}, {"2001:db8:0:1::1", "2001:db8:0:2::1", false},
		{"fe80::1%eth0", "fe80::1%eth1", true}, {"", "@", true}, {"", "0.0.0.0", false},
	} {
		if same := source(c.a) == source(c.b); same != c.same {
			t.Errorf("sources %q and %q are equal: %t, want %t", c.a, c.b, same, c.same)
		}
	}
}

// A source is an address or, for IPv6, a /64 network.
func TestSourcesAreNetworks(t *testing.T) {
	for from, want := range map[string]string{"192.0.2.1": "192.0.2.1/32", "::ffff:192.0.2.1": "192.0.2.1/32",
		"2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64", "2001:db8:1:3::": "2001:db8:1:3::/64"} {
		if got := SourceNetwork(netip.MustParseAddr(from)).String(); got != want {
			t.Errorf("SourceNetwork(%s) = %s, want %s", from, got, want)
		}
	}
	if got := SourceNetwork(netip.Addr{}); got.IsValid() {
		t.Errorf("SourceNetwork of the zero address = %s", got)
	}
}

func source(address string) netip.Prefix {
	ip, _ := netip.ParseAddr(address)
	return SourceNetwork(ip)
}

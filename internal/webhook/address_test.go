package webhook

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func networksOf(t *testing.T, texts ...string) Networks {
	t.Helper()
	n, err := ParseNetworks(texts)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A malformed URL is rejected when it is configured, and the error does not show it.
func TestCheckURL(t *testing.T) {
	for text, want := range map[string]string{
		"https://example.com":                        "",
		"https://example.com:8443/hooks/x?token=abc": "",
		"HTTPS://EXAMPLE.COM/":                       "",
		"https://xn--bcher-kva.example/a%20b":        "",
		"https://8.8.8.8/x":                          "",
		"https://[2606:4700::1111]/x":                "",
		"":                                           "is required",
		"example.com": "must begin with https, or with http to go to a network of " +
			"--webhook-allow-network",
		"http://example.com/x":                             "only https is allowed",
		"ftp://example.com/x":                              "it begins with \"ftp\", and must begin with https, or with http",
		"file:///etc/passwd":                               "must begin with https, or with http",
		"https:example.com":                                "no host",
		"https://":                                         "no host",
		"https:///x":                                       "no host",
		"https://:443/x":                                   "no host",
		"https://user:secret@example.com/":                 "a user or password",
		"https://user@example.com/":                        "a user or password",
		"https://example.com@127.0.0.1/":                   "a user or password",
		"https://example.com/#x":                           "a fragment",
		"https://example.com:0/":                           "port",
		"https://example.com:99999/":                       "port",
		"https://example.com:/":                            "port",
		"https://example.com:https/":                       "is not a URL",
		"https://example.com/ x":                           "spaces",
		"https://example.com/\r\nHost:x":                   "spaces",
		"https://exämple.com/":                             "spaces",
		"https://exa%6dple.com/":                           "is not a URL",
		"https://exa$mple.com/":                            "characters other",
		"https://2130706433/":                              "neither a name nor an address",
		"https://127.1/":                                   "neither a name nor an address",
		"https://0x7f.0.0.1/":                              "neither a name nor an address",
		"https://0177.0.0.1/":                              "neither a name nor an address",
		"https://1.2.3.0x7f/":                              "neither a name nor an address",
		"https://example.0x/":                              "neither a name nor an address",
		"https://127.0.0.1/":                               "not an address of the public internet",
		"https://[::1]/":                                   "not an address of the public internet",
		"https://[::ffff:10.0.0.1]/":                       "not an address of the public internet",
		"https://[fe80::1%25eth0]/":                        "zone",
		"https://[::ffff:127.0.0.1":                        "is not a URL",
		"https://" + strings.Repeat("a", 300) + ".com/":    "more than 253",
		"https://example.com/" + strings.Repeat("a", 2048): "at most 2048",
	} {
		err := CheckURL("url", "default", text, nil)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "url: ")):
			t.Errorf("%s: %v, want %q", text, err, want)
		case err != nil && strings.Contains(err.Error(), "secret"):
			t.Errorf("%s: the error reveals a secret: %v", text, err)
		}
	}
	if err := CheckURL("url", "default", "http://example.com/x", networksOf(t, "10.0.0.0/8")); err != nil {
		t.Errorf("http URL with an allowed network: %v", err)
	}
	if err := CheckURL("url", "default", "http://8.8.8.8/x", networksOf(t, "10.0.0.0/8")); err == nil {
		t.Error("http URL with an address outside the allowed networks was accepted")
	}
}

func TestPermitted(t *testing.T) {
	for text, ok := range map[string]bool{
		"8.8.8.8": true, "1.1.1.1": true, "2606:4700::1111": true, "2a00:1450::1": true, "::ffff:8.8.8.8": true,
		"0.0.0.0": false, "0.1.2.3": false, "10.0.0.1": false, "10.255.255.255": false, "100.64.0.1": false, "100.127.255.255": false,
		"100.128.0.1": true, "127.0.0.1": false, "127.255.255.254": false, "169.254.169.254": false, "172.16.0.1": false,
		"172.31.255.255": false, "172.32.0.1": true, "192.0.0.192": false, "192.0.2.1": false, "192.88.99.1": false, "192.168.1.1": false,
		"198.18.0.1": false, "198.51.100.1": false, "203.0.113.1": false, "224.0.0.1": false, "239.255.255.255": false, "240.0.0.1": false,
		"255.255.255.255": false, "168.63.129.16": false, "100.100.100.200": false, "::": false, "::1": false, "::127.0.0.1": false,
		"::ffff:127.0.0.1": false, "::ffff:169.254.169.254": false, "64:ff9b::a00:1": false, "64:ff9b:1::1": false, "100::1": false,
		"fe80::1": false, "fec0::1": false, "fc00::1": false, "fd00:ec2::254": false, "ff02::1": false, "2001::1": false,
		"2001:db8::1": false, "2002:7f00:1::": false, "3fff::1": false, "4000::1": false,
	} {
		if err := checkAddress(netip.MustParseAddr(text), true, nil); (err == nil) != ok {
			t.Errorf("checkAddress(%s) over https: %v", text, err)
		}
		if err := checkAddress(netip.MustParseAddr(text), false, nil); err == nil {
			t.Errorf("checkAddress(%s) permitted the address over http", text)
		}
	}
	allow := networksOf(t, "10.1.0.0/16", "fd00::/8").of("default")
	for text, ok := range map[string]bool{"10.1.2.3": true, "::ffff:10.1.2.3": true, "10.2.0.1": false, "fd00::1": true, "fe80::1": false,
		"127.0.0.1": false, "64:ff9b::a01:203": false} {
		for _, secure := range []bool{true, false} {
			if err := checkAddress(netip.MustParseAddr(text), secure, allow); (err == nil) != ok {
				t.Errorf("checkAddress(%s) with allowed networks, secure %t: %v", text, secure, err)
			}
		}
	}
	if err := checkAddress(netip.Addr{}, true, nil); err == nil {
		t.Error("checkAddress permitted the zero address")
	}
}

// Each namespace has networks of its own.
func TestNetworksOfNamespaces(t *testing.T) {
	n := networksOf(t, "10.1.0.0/16", "shop=10.2.0.0/16", "*=10.3.0.0/16", "shop=10.4.0.0/16")
	for ns, want := range map[string][]bool{"default": {true, false, true, false}, "shop": {false, true, true, true},
		"other": {false, false,
			true, false}, "*": {false, false, true, false}} {
		for i, ok := range want {
			url := fmt.Sprintf("http://10.%d.0.1/x", i+1)
			if err := CheckURL("url", ns, url, n); (err == nil) != ok {
				t.Errorf("%s in namespace %s: %v, allowed: %v", url, ns, err, ok)
			}
		}
	}
}

func TestParseNetworks(t *testing.T) {
	for text, want := range map[string]string{"10.0.0.0/8": "", "fd00::/8": "", "127.0.0.1/32": "",
		"10.0.0.1/8": "the network is 10.0.0.0/8", "10.0.0.0": "not a network", "": "not a network", "10.0.0.0/33": "not a network",
		"shop=10.0.0.0/8": "", "*=10.0.0.0/8": "", "=10.0.0.0/8": "namespace: \"\" has 0 bytes", "Shop=10.0.0.0/8": "not a namespace name",
		"shop=": "\"shop=\" is not a network", "shop=10.0.0.1/8": "the network is 10.0.0.0/8", "::ffff:10.0.0.0/104": "write it as IPv4",
		"internal": "not a network"} {
		_, err := ParseNetworks([]string{text})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestShown(t *testing.T) {
	for text, want := range map[string]string{"https://example.com/services/T0/B0/secret?x=secret": "https://example.com/…",
		"https://example.com:8443": "https://example.com:8443", "https://example.com/": "https://example.com",
		"https://example.com?secret": "https://example.com/…"} {
		if got := Redacted(text); got != want {
			t.Errorf("Redacted(%s) = %s", text, got)
		}
	}
}

package certs

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// issue makes a certificate with the given contents.
func issue(t *testing.T, ca Pair, c *x509.Certificate) *x509.Certificate {
	t.Helper()
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	p, err := newLeaf(ca, now, 10, nil, c)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, p)
}

// TestNames checks that each name has its kind, that a subject is complete, and that unprintable names are left out.
func TestNames(t *testing.T) {
	ca := authority(t, 100)
	cn := func(s string) pkix.AttributeTypeAndValue {
		return pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: s}
	}
	spiffe := &url.URL{Scheme: "spiffe", Host: "example.com", Path: "/billing"}
	for what, c := range map[string]struct {
		cert *x509.Certificate
		want []string
	}{
		"all kinds": {&x509.Certificate{Subject: pkix.Name{CommonName: "billing", Organization: []string{"Example, Inc."}},
			URIs: []*url.URL{spiffe}, DNSNames: []string{"Billing.Example.com"}, EmailAddresses: []string{"ops@example.com"}},
			[]string{"uri:spiffe://example.com/billing", "dns:billing.example.com", "email:ops@example.com",
				`subject:CN=billing,O=Example\, Inc.`}},
		"no subject": {&x509.Certificate{URIs: []*url.URL{spiffe}}, []string{"uri:spiffe://example.com/billing"}},
		"two common names": {&x509.Certificate{Subject: pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{cn("admin"), cn("guest")}}},
			[]string{"subject:CN=guest,CN=admin"}},
		"a comma in a name": {&x509.Certificate{Subject: pkix.Name{CommonName: "admin,O=Example"}},
			[]string{`subject:CN=admin\,O=Example`}},
		"a line in a name": {&x509.Certificate{Subject: pkix.Name{CommonName: "admin\nlevel=INFO"}}, nil},
		"a long name":      {&x509.Certificate{Subject: pkix.Name{CommonName: strings.Repeat("a", LongestName)}}, nil},
	} {
		if got := Names(issue(t, ca, c.cert)); !slices.Equal(got, c.want) {
			t.Errorf("%s: Names = %q, want %q", what, got, c.want)
		}
	}
}

// TestNewClient checks that the certificate is for clients only, and valid for the given lifetime.
func TestNewClient(t *testing.T) {
	ca := authority(t, 100)
	p, err := NewClient(ca, now, 10, "billing", []string{"billing.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	c := parse(t, p)
	if got := Names(c); !slices.Equal(got, []string{"uri:pawl://client/billing", "dns:billing.example.com", "subject:CN=billing"}) {
		t.Errorf("client's certificate has the names %q", got)
	}
	roots, others := trusting(t, ca.Cert), trusting(t, authority(t, 100).Cert)
	node, err := NewServer(ca, now, 10, "s", []string{"s"})
	if err != nil {
		t.Fatal(err)
	}
	for what, v := range map[string]struct {
		chain []*x509.Certificate
		roots *Trust
		at    time.Time
		says  string
	}{
		"good":                {[]*x509.Certificate{c}, roots, now, ""},
		"another authority":   {[]*x509.Certificate{c}, others, now, "unknown authority"},
		"expired":             {[]*x509.Certificate{c}, roots, now.Add(11 * day), "expired"},
		"not yet":             {[]*x509.Certificate{c}, roots, now.Add(-day), "not yet valid"},
		"none":                {nil, roots, now, "no certificate"},
		"that of a server":    {[]*x509.Certificate{parse(t, node)}, roots, now, "incompatible key usage"},
		"the authority's own": {[]*x509.Certificate{parse(t, ca)}, others, now, "unknown authority"},
	} {
		err := v.roots.Verify(v.chain, x509.ExtKeyUsageClientAuth, v.at)
		if v.says == "" && err != nil || v.says != "" && (err == nil || !strings.Contains(err.Error(), v.says)) {
			t.Errorf("Verify of %s: %v, want %q", what, err, v.says)
		}
	}
	if _, err := NewClient(ca, now, 10, "Bill ing", nil); err == nil {
		t.Error("NewClient accepted a name with a space")
	}
}

// TestAuthorities checks that authorities are reloaded when their file changes, and that a broken file changes nothing.
func TestAuthorities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, err := NewAuthority(time.Now(), 100)
		if err != nil {
			t.Fatal(err)
		}
		two, err := NewAuthority(time.Now(), 100)
		if err != nil {
			t.Fatal(err)
		}
		f := newFolder(t)
		f.write(f.cert, one.Cert)
		silent := slog.New(slog.NewTextHandler(io.Discard, nil))
		a, err := OpenAuthorities(f.cert, silent)
		if err != nil {
			t.Fatal(err)
		}
		first := a.Now()
		time.Sleep(checkInterval)
		if a.Now() != first {
			t.Error("the pool was replaced although the file had not changed")
		}
		f.write(f.cert, []byte("half a file"))
		time.Sleep(checkInterval)
		if a.Now() != first {
			t.Error("a broken file replaced the authorities")
		}
		f.write(f.cert, two.Cert)
		time.Sleep(checkInterval)
		if a.Now() == first {
			t.Error("the changed file was not reloaded")
		}
		leaf, err := NewServer(one, time.Now(), 10, "s", []string{"s"})
		if err != nil {
			t.Fatal(err)
		}
		for what, content := range map[string][]byte{"a leaf": leaf.Cert, "a key": leaf.Key, "nothing": nil} {
			path := filepath.Join(t.TempDir(), "x")
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := OpenAuthorities(path, silent); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("OpenAuthorities of %s: %v, want an error with the path", what, err)
			}
		}
	})
}

// TestOpenClient checks that a certificate that no server would accept is rejected when it is read.
func TestOpenClient(t *testing.T) {
	ca, err := NewAuthority(time.Now().AddDate(0, 0, -20), 1000)
	if err != nil {
		t.Fatal(err)
	}
	at := func(from time.Time) Pair {
		p, err := NewClient(ca, from, 10, "c", nil)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for what, c := range map[string]struct {
		pair Pair
		says string
	}{
		"good":       {at(time.Now()), ""},
		"expired":    {at(time.Now().AddDate(0, 0, -11)), "it expired at"},
		"a server's": {server(t, ca, 10, "a"), "lacks client authentication"},
	} {
		f := newFolder(t)
		f.put(c.pair)
		k, err := OpenClient(f.cert, f.key, nil)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("OpenClient, %s: %v, want %q", what, err, c.says)
		}
		if err == nil {
			if shown, _ := k.GetClientCertificate(nil); shown != k.Now() {
				t.Errorf("%s: GetClientCertificate returned another certificate than Now", what)
			}
		}
	}
}

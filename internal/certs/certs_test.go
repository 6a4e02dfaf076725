package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func authority(t *testing.T, days int) Pair {
	t.Helper()
	p, err := NewAuthority(now, days)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func parse(t *testing.T, p Pair) *x509.Certificate {
	t.Helper()
	c, err := Parse(p.Cert)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNewAuthority(t *testing.T) {
	a, b := parse(t, authority(t, 10)), parse(t, authority(t, 10))
	if !a.IsCA || !a.MaxPathLenZero || a.KeyUsage&x509.KeyUsageCertSign == 0 {
		t.Errorf("authority's certificate: CA %t, MaxPathLenZero %t, key usage %b", a.IsCA, a.MaxPathLenZero, a.KeyUsage)
	}
	if want := now.Add(10 * day); !a.NotAfter.Equal(want) || !a.NotBefore.Before(now) {
		t.Errorf("authority is valid from %v until %v, want until %v", a.NotBefore, a.NotAfter, want)
	}
	if key, ok := a.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
		t.Errorf("key is %T, want P-256", a.PublicKey)
	}
	if a.Subject.CommonName == b.Subject.CommonName {
		t.Errorf("two authorities have the same common name %q", a.Subject.CommonName)
	}
}

func TestNewNode(t *testing.T) {
	ca := authority(t, 100)
	p, err := NewNode(ca, now, 100, "n-1", []string{"node1.example.com", "10.0.0.1", "fd00::1", "localhost"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tls.X509KeyPair(p.Cert, p.Key); err != nil {
		t.Error(err)
	}
	c := parse(t, p)
	if len(c.URIs) != 1 || c.URIs[0].String() != "pawl://node/n-1" || c.Subject.CommonName != "n-1" || c.IsCA {
		t.Errorf("node's certificate: URIs %v, subject %v, CA %t", c.URIs, c.Subject, c.IsCA)
	}
	if !slices.Equal(c.DNSNames, []string{"node1.example.com", "localhost"}) || len(c.IPAddresses) != 2 {
		t.Errorf("node's certificate: DNS names %v, IP addresses %v", c.DNSNames, c.IPAddresses)
	}
	roots := x509.NewCertPool()
	roots.AddCert(parse(t, ca))
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		for at, want := range map[time.Time]bool{now: true, now.Add(100*day + 1e9): false, now.Add(-2 * backdate): false} {
			_, err := c.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{usage}})
			if (err == nil) != want {
				t.Errorf("Verify for key usage %d at %v: %v, want success: %t", usage, at, err, want)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	ca := authority(t, 100)
	node, err := NewNode(ca, now, 10, "n1", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewNode(ca, now, 101, "n1", nil); !errors.Is(err, ErrOutlives) || !strings.Contains(err.Error(), "until 2026-04-12") {
		t.Errorf("NewNode with a longer lifetime than the authority's: %v, want ErrOutlives", err)
	}
	for name, by := range map[string]Pair{
		"a node":        node,
		"no key":        {Cert: ca.Cert},
		"another's key": {Cert: ca.Cert, Key: authority(t, 1).Key},
	} {
		if _, err := NewNode(by, now, 10, "n1", nil); err == nil || !strings.Contains(err.Error(), "authority") {
			t.Errorf("NewNode signed by %s: %v, want an error about the authority", name, err)
		}
	}
	for _, name := range []string{"", "N1", "n_1", "n.1", "n/1", "ü", strings.Repeat("n", 64), "n 1"} {
		if _, err := NewNode(ca, now, 10, name, nil); err == nil || !strings.Contains(err.Error(), "1 to 63") {
			t.Errorf("name %q: %v, want an error", name, err)
		}
	}
	for _, host := range []string{"", "a:1", "a..b", ".a", "a.", "*.a", "a b", "ü", strings.Repeat("a", 254)} {
		if _, err := NewNode(ca, now, 10, "n1", []string{host}); err == nil || !strings.Contains(err.Error(), "host") {
			t.Errorf("host %q: %v, want an error", host, err)
		}
	}
}

func TestParse(t *testing.T) {
	ca := authority(t, 100)
	if c, err := Parse(bytes.Join([][]byte{ca.Key, ca.Cert}, nil)); err != nil || !c.IsCA {
		t.Errorf("Parse of a file with a key and a certificate: %v", err)
	}
	for _, in := range [][]byte{nil, ca.Key, []byte("hello"), []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")} {
		if _, err := Parse(in); err == nil {
			t.Errorf("Parse(%.30q) accepted input that is not a certificate", in)
		}
	}
}

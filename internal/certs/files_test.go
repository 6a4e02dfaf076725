package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// folder holds the files of a pair. Writing them sets their modification time to the bubble's time.
type folder struct {
	t         *testing.T
	cert, key string
}

func newFolder(t *testing.T) *folder {
	dir := t.TempDir()
	return &folder{t, filepath.Join(dir, "s.crt"), filepath.Join(dir, "s.key")}
}

func (f *folder) write(path string, content []byte) {
	f.t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Now(), time.Now()); err != nil {
		f.t.Fatal(err)
	}
}

func (f *folder) put(p Pair) { f.write(f.cert, p.Cert); f.write(f.key, p.Key) }

// server makes a pair for a host.
func server(t *testing.T, ca Pair, days int, hosts ...string) Pair {
	t.Helper()
	p, err := NewServer(ca, time.Now(), days, "s", hosts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestKeyPairReload checks that changed files are used if they are complete and valid. Otherwise the previous ones stay in use.
func TestKeyPairReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, err := NewAuthority(time.Now(), 1000)
		if err != nil {
			t.Fatal(err)
		}
		f := newFolder(t)
		first, second, short := server(t, ca, 10, "one"), server(t, ca, 10, "two"), server(t, ca, 1, "short")
		f.put(first)
		var log bytes.Buffer
		k, err := OpenKeyPair(f.cert, f.key, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		shows := func(step, want, says string) {
			t.Helper()
			time.Sleep(checkInterval)
			if got := k.Now().Leaf.DNSNames; !slices.Equal(got, []string{want}) {
				t.Errorf("%s: the certificate is for %q, want %q", step, got, want)
			}
			if got := log.String(); says == "" && got != "" || !strings.Contains(got, says) {
				t.Errorf("%s: log = %q, want %q", step, got, says)
			}
			log.Reset()
		}
		shows("nothing changed", "one", "")
		f.write(f.cert, second.Cert)
		shows("only the certificate", "one", "private key does not match")
		shows("again", "one", "") // already logged
		f.write(f.key, second.Key)
		shows("the key too", "two", "reloaded")
		f.put(short)
		shows("one for a day", "short", "reloaded")
		time.Sleep(2 * day)
		f.write(f.cert, short.Cert)
		shows("an expired one", "short", "it expired at")
		f.put(first)
		shows("a good one", "one", "reloaded")
		time.Sleep(logInterval)
		f.write(f.cert, []byte("half a file"))
		shows("half a file", "one", "can't be used")
		time.Sleep(logInterval)
		if err := os.Remove(f.cert); err != nil {
			t.Fatal(err)
		}
		shows("no file", "one", "no such file")
		time.Sleep(logInterval)
		f.write(f.cert, make([]byte, maxPEM+1))
		shows("a huge file", "one", "at most 1048576")
		f.put(second)
		k.Now()
		time.Sleep(checkInterval / 2)
		shows("healed", "two", "reloaded")
	})
}

// TestOpenKeyPair checks that what clients would reject is rejected at the start, with the file's name.
func TestOpenKeyPair(t *testing.T) {
	ca, err := NewAuthority(time.Now().AddDate(0, 0, -20), 1000)
	if err != nil {
		t.Fatal(err)
	}
	good := server(t, ca, 10, "a.example.com", "10.0.0.1")
	at := func(days int, from time.Time, hosts ...string) Pair {
		p, err := NewServer(ca, from, days, "s", hosts)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	bare, err := NewNode(ca, time.Now(), 10, "n1", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		pair Pair
		want string
	}{
		"good":           {good, ""},
		"expired":        {at(10, time.Now().AddDate(0, 0, -11), "a"), "s.crt\": it expired at"},
		"not yet":        {at(10, time.Now().Add(3*time.Hour), "a"), "s.crt\": it is not valid before"},
		"another's key":  {Pair{good.Cert, at(1, time.Now(), "a").Key}, "private key does not match public key"},
		"no certificate": {Pair{good.Key, good.Key}, "s.crt"},
		"no key":         {Pair{good.Cert, nil}, "s.key"},
		"no host":        {bare, "it names no host"},
		"a client's":     {clientOnly(t, ca), "lacks server authentication"},
	} {
		f := newFolder(t)
		f.put(c.pair)
		_, err := OpenKeyPair(f.cert, f.key, slog.New(slog.NewTextHandler(io.Discard, nil)))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	f := newFolder(t)
	if _, err := OpenKeyPair(f.cert, f.key, nil); err == nil || !strings.Contains(err.Error(), "s.crt: no such file") {
		t.Errorf("OpenKeyPair without files: %v", err)
	}
}

// clientOnly makes a certificate for a host that is not for servers.
func clientOnly(t *testing.T, ca Pair) Pair {
	t.Helper()
	parent, key, err := parseAuthority(ca)
	if err != nil {
		t.Fatal(err)
	}
	c := parse(t, server(t, ca, 10, "a"))
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	p, err := sign(c, parent, key)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestNewServer checks that clients accept the certificate for its hosts, and that it is not accepted as a node's.
func TestNewServer(t *testing.T) {
	ca := authority(t, 100)
	p, err := NewServer(ca, now, 100, "s-1", []string{"pawl.example.com", "10.0.0.1", "::1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tls.X509KeyPair(p.Cert, p.Key); err != nil {
		t.Error(err)
	}
	c := parse(t, p)
	roots := x509.NewCertPool()
	roots.AddCert(parse(t, ca))
	verify := func(host string, usage x509.ExtKeyUsage) error {
		_, err := c.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, DNSName: host, KeyUsages: []x509.ExtKeyUsage{usage}})
		return err
	}
	for host, want := range map[string]bool{"pawl.example.com": true, "10.0.0.1": true, "::1": true, "s-1": false, "example.com": false} {
		if err := verify(host, x509.ExtKeyUsageServerAuth); (err == nil) != want {
			t.Errorf("Verify for host %q: %v, want success: %t", host, err, want)
		}
	}
	if verify("", x509.ExtKeyUsageClientAuth) == nil {
		t.Error("a server's certificate was accepted for client authentication")
	}
	if len(c.URIs) > 0 || c.IsCA {
		t.Errorf("server's certificate: URIs %v, CA %t", c.URIs, c.IsCA)
	}
	for want, make := range map[string]func() (Pair, error){
		"no host":  func() (Pair, error) { return NewServer(ca, now, 10, "s", nil) },
		"host":     func() (Pair, error) { return NewServer(ca, now, 10, "s", []string{"a:1"}) },
		"1 to 63":  func() (Pair, error) { return NewServer(ca, now, 10, "S", []string{"a"}) },
		"outlives": func() (Pair, error) { return NewServer(ca, now, 101, "s", []string{"a"}) },
	} {
		if _, err := make(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewServer error = %v, want %q", err, want)
		}
	}
}

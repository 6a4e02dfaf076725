package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/certs"
)

// authority is a CA for tests.
type authority struct {
	t    testing.TB
	dir  string
	pair certs.Pair
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	pair, err := certs.NewAuthority(time.Now(), 3650)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{t: t, dir: t.TempDir(), pair: pair}
}

// month is the lifetime of a certificate that doesn't expire in a test.
const month = 30 * 24 * time.Hour

// node creates the files of a node's certificate with the given remaining lifetime.
func (a *authority) node(name string, left time.Duration) *TLS {
	a.t.Helper()
	pair, err := certs.NewNode(a.pair, time.Now().Add(left-month), 30, name, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.write(name, pair)
}

func (a *authority) write(name string, pair certs.Pair) *TLS {
	a.t.Helper()
	base := filepath.Join(a.dir, name)
	for file, content := range map[string][]byte{base + ".crt": pair.Cert, base + ".key": pair.Key, base + ".ca": a.pair.Cert} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	return &TLS{CertFile: base + ".crt", KeyFile: base + ".key", CAFile: base + ".ca"}
}

func withTLS(files *TLS) func(*Config) { return func(c *Config) { c.TLS = files } }

// tlsPair starts n1 and n2 under one authority.
func tlsPair(t *testing.T, net *network, left time.Duration) (*authority, *node, *node) {
	t.Helper()
	ca := newAuthority(t)
	a := start(t, net, member(1), withTLS(ca.node("n1", left)))
	b := start(t, net, member(2), withTLS(ca.node("n2", left)))
	all := map[uint32]Address{1: {"n1", "n1"}, 2: {"n2", "n2"}}
	a.SetPeers(all)
	b.SetPeers(all)
	return ca, a, b
}

// TestTLS: everything also works under TLS.
func TestTLS(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		ca, a, b := tlsPair(t, net, month)
		if answer, err := a.Call(t.Context(), 2, "claim", []byte("x")); err != nil || string(answer) != "claim x" {
			t.Errorf("call = %q, %v", answer, err)
		}
		long := bytes.Repeat([]byte("x"), 4*maxUnproven) // an authenticated peer may send more than a stranger
		if answer, err := a.Call(t.Context(), 2, "claim", long); err != nil || len(answer) != len("claim ")+len(long) {
			t.Errorf("a long answer arrived with %d bytes, %v", len(answer), err)
		}
		a.Send(2, []Envelope{heartbeat(1, 1), entries(1, 1, 1<<20)})
		settle()
		if got := b.received(); len(got) != 2 {
			t.Errorf("%d messages arrived, want 2", len(got))
		}
		var got []byte
		b.snapshot = func(_ context.Context, _ []byte, r io.Reader) (err error) { got, err = io.ReadAll(r); return err }
		want, body := state(1 << 20)
		if err := a.SendSnapshot(t.Context(), 2, nil, body); err != nil || !bytes.Equal(got, want) {
			t.Errorf("a snapshot of %d bytes arrived with %d, %v", len(want), len(got), err)
		}
		fresh := start(t, net, Peer{Name: "n3"}, withTLS(ca.node("n3", month)))
		if who, _, err := fresh.CallAddress(t.Context(), "n2", "join", nil); err != nil || who != member(2) {
			t.Errorf("join = %v, %v", who, err)
		}
		if _, _, ok := b.Offset(1); !ok {
			t.Error("no ping was answered")
		}
		b.become(Peer{Cluster: ours, Number: 2, Name: "n9"})
		who, _, err := fresh.CallAddress(t.Context(), "n2", "join", nil)
		if who != (Peer{}) || err == nil || !strings.Contains(err.Error(), `node "n9" (2) answered with the certificate of node "n2"`) {
			t.Errorf("CallAddress to a node with a false name = %v, %v", who, err)
		}
	})
}

// TestTooMuchBeforeHandshake: a peer that sends more than a handshake without having proved its identity is cut off, even if we called it.
func TestTooMuchBeforeHandshake(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		ca := newAuthority(t)
		n := start(t, net, member(2), withTLS(ca.node("n2", month)))
		files := newAuthority(t).node("n1", month)
		cert, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
		if err != nil {
			t.Fatal(err)
		}
		for size := 0; size < 128<<10; size += len(cert.Certificate[0]) { // less than the library accepts
			cert.Certificate = append(cert.Certificate, cert.Certificate[0])
		}
		stranger := &tls.Config{Certificates: []tls.Certificate{cert}, InsecureSkipVerify: true,
			MinVersion: tls.VersionTLS13} // #nosec G402 -- a stranger

		conn, err := net.dial(t.Context(), "n2")
		if err != nil {
			t.Fatal(err)
		}
		client := tls.Client(conn, stranger)
		_ = client.Handshake() // it has sent everything
		if _, err := client.Read(make([]byte, 1)); err == nil {
			t.Error("a client that sent too much before authenticating was not disconnected")
		}
		settle()
		n.says("a connection to the peer port was refused", "more than 32768 bytes before it proved its identity")

		l := net.listen("n3")
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_ = tls.Server(conn, stranger).Handshake()
			}
		}()
		n.SetPeers(map[uint32]Address{3: {"n3", "n3"}})
		if _, err := n.Call(within(t, time.Minute), 3, "claim", nil); err == nil {
			t.Error("the answer of a server that sent too much before authenticating was accepted")
		}
		settle() // a ping of the same node may be about to log the line that the limit allows
		n.says("the TLS handshake with a peer failed", "more than 32768 bytes before it proved its identity")
		_ = l.Close()
	})
}

// TestTLSRefusals: a node that can't prove the identity that it claims is admitted nowhere, and both sides know why.
func TestTLSRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		peer  func(t *testing.T, ca *authority) *TLS // n1's files
		a     Peer
		call  string // in the caller's error
		n1Log string
		n2Log string
	}{
		"a foreign authority": {
			peer: func(t *testing.T, ca *authority) *TLS {
				files := newAuthority(t).node("n1", month)
				return files
			},
			call: "unknown authority", n1Log: "the TLS handshake with a peer failed", n2Log: "a connection to the peer port was refused",
		},
		"a foreign authority that trusts ours": {
			peer: func(t *testing.T, ca *authority) *TLS {
				files := newAuthority(t).node("n1", month)
				both, _ := os.ReadFile(files.CAFile)
				if err := os.WriteFile(files.CAFile, append(both, ca.pair.Cert...), 0o600); err != nil {
					t.Fatal(err)
				}
				return files
			},
			call: "", n1Log: "a peer can't be reached", n2Log: "unknown authority",
		},
		"another name": {
			peer: func(_ *testing.T, ca *authority) *TLS { return ca.node("n7", month) }, a: Peer{Cluster: ours, Number: 1, Name: "n7"},
			call: `(1) has the certificate of node "n7"`, n1Log: "a peer refused us", n2Log: "a peer was refused",
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, net *network) {
				ca := newAuthority(t)
				b := start(t, net, member(2), withTLS(ca.node("n2", month)))
				self := member(1)
				if c.a != (Peer{}) {
					self = c.a
				}
				a := start(t, net, self, withTLS(c.peer(t, ca)))
				a.become(member(1)) // it lies only from now on
				a.SetPeers(map[uint32]Address{2: {"n2", "n2"}})
				b.call = func(context.Context, Peer, string, []byte) ([]byte, error) {
					t.Error("a call with a false identity reached the handler")
					return nil, nil
				}
				_, err := a.Call(within(t, 5*time.Second), 2, "claim", nil)
				if !errors.Is(err, ErrNotSent) || !strings.Contains(err.Error(), c.call) {
					t.Errorf("call = %v, want ErrNotSent with %q", err, c.call)
				}
				a.Send(2, []Envelope{heartbeat(1, 1)})
				settle()
				if got := b.received(); len(got) > 0 {
					t.Errorf("%d messages with a false identity arrived", len(got))
				}
				a.says(c.n1Log)
				b.says(c.n2Log)
			})
		})
	}
}

// TestTLSWrongServer: a node at the right address with another name is rejected.
func TestTLSWrongServer(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		_, a, b := tlsPair(t, net, month)
		b.call = func(context.Context, Peer, string, []byte) ([]byte, error) {
			t.Error("a call to a node with the wrong name reached the handler")
			return nil, nil
		}
		a.SetPeers(map[uint32]Address{2: {"n2", "n5"}})
		_, err := a.Call(within(t, 5*time.Second), 2, "claim", nil)
		if !errors.Is(err, ErrNotSent) || !strings.Contains(err.Error(), `certificate of node "n2", not of "n5"`) {
			t.Errorf("call = %v, want ErrNotSent", err)
		}
		settle()
		a.says("the TLS handshake with a peer failed", "n5")
	})
}

// TestTLSHandshakes: anything other than TLS 1.3 with a node's certificate fails in the handshake.
func TestTLSHandshakes(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		ca := newAuthority(t)
		start(t, net, member(2), withTLS(ca.node("n2", month)))
		good, err := newKeyring(*ca.node("n1", month), "n1", nil)
		if err != nil {
			t.Fatal(err)
		}
		client := certify(t, ca, "pawl://client/c1", x509.ExtKeyUsageClientAuth)
		nobody := certify(t, ca, "", x509.ExtKeyUsageClientAuth)
		odd := certify(t, ca, "pawl:n1", x509.ExtKeyUsageClientAuth)
		serverOnly := certify(t, ca, "pawl://node/n1", x509.ExtKeyUsageServerAuth)
		try := func(change func(*tls.Config)) error {
			cfg := good.now().client("n2")
			cfg.NextProtos = []string{"h2"}
			change(cfg)
			raw, err := net.dial(t.Context(), "n2")
			if err != nil {
				t.Fatal(err)
			}
			defer raw.Close()
			conn := tls.Client(raw, cfg)
			_ = conn.SetDeadline(time.Now().Add(2 * handshakeTimeout))
			if err := conn.Handshake(); err != nil {
				return err
			}
			_, err = conn.Read(make([]byte, 1)) // the server's preface, or its refusal
			return err
		}
		if err := try(func(*tls.Config) {}); err != nil {
			t.Errorf("a good handshake: %v", err)
		}
		for name, change := range map[string]func(*tls.Config){
			"TLS 1.2":                      func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12 },
			"no certificate":               func(c *tls.Config) { c.Certificates = nil },
			"a client's certificate":       func(c *tls.Config) { c.Certificates = []tls.Certificate{client} },
			"a certificate without a name": func(c *tls.Config) { c.Certificates = []tls.Certificate{nobody} },
			"another URI of ours":          func(c *tls.Config) { c.Certificates = []tls.Certificate{odd} },
			"a server's certificate":       func(c *tls.Config) { c.Certificates = []tls.Certificate{serverOnly} },
			"no HTTP/2":                    func(c *tls.Config) { c.NextProtos = nil },
		} {
			if err := try(change); err == nil {
				t.Errorf("a handshake with %s succeeded", name)
			}
		}
		pass(month + time.Second)
		if err := try(func(c *tls.Config) { c.VerifyConnection = nil }); err == nil {
			t.Error("a handshake with an expired certificate succeeded")
		}
	})
}

// certify creates a certificate with a URI that NewNode would not use.
func certify(t *testing.T, ca *authority, uri string, usage x509.ExtKeyUsage) tls.Certificate {
	t.Helper()
	by, err := tls.X509KeyPair(ca.pair.Cert, ca.pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	own, err := certs.NewNode(ca.pair, time.Now(), 30, "n1", nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(own.Cert, own.Key)
	if err != nil {
		t.Fatal(err)
	}
	template := *pair.Leaf
	template.ExtKeyUsage, template.URIs = []x509.ExtKeyUsage{usage}, nil
	if uri != "" {
		u, err := url.Parse(uri)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = []*url.URL{u}
	}
	der, err := x509.CreateCertificate(nil, &template, by.Leaf, pair.Leaf.PublicKey, by.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: pair.PrivateKey}
}

// TestReload: open connections survive the expiry of a certificate, but no new ones can be made; a new file fixes that.
func TestReload(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		ca, a, b := tlsPair(t, net, time.Minute)
		fails := func() error {
			net.cable("n2").cut()
			settle()
			_, err := a.Call(within(t, 3*time.Second), 2, "claim", nil)
			return err
		}
		if err := fails(); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if err := fails(); !errors.Is(err, ErrNotSent) || !strings.Contains(err.Error(), "expired") {
			t.Errorf("call with expired certificates = %v, want ErrNotSent", err)
		}
		write := func(file string, content []byte) {
			t.Helper()
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		path := filepath.Join(ca.dir, "n1.crt")
		ca.node("n2", month)
		write(path, []byte("half a file"))
		pass(2 * time.Second)
		if err := fails(); err == nil {
			t.Error("a call with an expired certificate succeeded")
		}
		a.says("changed certificate files can't be used", "n1.crt")
		ca.node("n1", month)
		pass(2 * time.Second)
		if err := fails(); err != nil {
			t.Errorf("call with new certificates: %v", err)
		}
		a.says("certificate files reloaded")
		b.says("certificate files reloaded")
		write(path, []byte("half a file"))
		pass(2 * time.Minute)
		if err := fails(); err != nil {
			t.Errorf("call with a broken file in place: %v", err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Minute)
		if err := fails(); err != nil {
			t.Errorf("call with the file removed: %v", err)
		}
		ca.node("n7", month)
		for _, end := range []string{".crt", ".key"} {
			if err := os.Rename(filepath.Join(ca.dir, "n7"+end), filepath.Join(ca.dir, "n1"+end)); err != nil {
				t.Fatal(err)
			}
		}
		pass(2 * time.Minute)
		if err := fails(); err != nil {
			t.Errorf("call with another node's files in place: %v", err)
		}
	})
}

// TestRevoked: the connections with a node are closed in both directions soon after its certificate is revoked, and no new ones are made.
// Another certificate for the same name is as good as the first.
func TestRevoked(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		ca, a, b := tlsPair(t, net, month)
		calls := func(from *node, to uint32) error {
			_, err := from.Call(within(t, 3*time.Second), to, "claim", nil)
			return err
		}
		if err := errors.Join(calls(a, 2), calls(b, 1)); err != nil {
			t.Fatal(err)
		}
		file, err := os.ReadFile(filepath.Join(ca.dir, "n2.crt"))
		if err != nil {
			t.Fatal(err)
		}
		stolen, err := certs.Parse(file)
		if err != nil {
			t.Fatal(err)
		}
		list, err := certs.Revoke(ca.pair, time.Now(), []*x509.Certificate{stolen})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(ca.dir, "n1.ca"), list, 0o600); err != nil {
			t.Fatal(err)
		}
		pass(trustEvery + time.Second)
		a.says("a connection with a peer is closed: its certificate is no longer trusted", "peer=n2", "was revoked at")
		for from, to := range map[*node]uint32{a: 2, b: 1} {
			if err := calls(from, to); !errors.Is(err, ErrNotSent) {
				t.Errorf("a call to node %d: %v, want ErrNotSent", to, err)
			}
		}
		const refused = "a connection to the peer port was refused"
		for range 10 { // b may still be waiting before it connects again, and calls fail meanwhile
			if strings.Contains(strings.Join(a.log.all(), "\n"), refused) {
				break
			}
			pass(3 * time.Second)
			calls(b, 1)
		}
		a.says(refused, "was revoked at")
		ca.node("n2", month)
		if err := os.WriteFile(filepath.Join(ca.dir, "n2.ca"), list, 0o600); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if err := errors.Join(calls(a, 2), calls(b, 1)); err != nil {
			t.Errorf("calls with another certificate: %v", err)
		}
		open := 0
		a.proven.Range(func(any, any) bool { open++; return true })
		if open == 0 || open > 10 {
			t.Errorf("%d connections are open", open)
		}
	})
}

// TestConnectionsOutliveTheirCertificate: what is trusted is read again, and a certificate that has expired since the handshake ends no
// connection.
func TestConnectionsOutliveTheirCertificate(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		ca, a, _ := tlsPair(t, net, time.Minute)
		if _, err := a.Call(t.Context(), 2, "claim", nil); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Minute)
		ca.node("n1", month) // its file of authorities is written again too
		pass(trustEvery + time.Second)
		if _, err := a.Call(within(t, 3*time.Second), 2, "claim", nil); err != nil {
			t.Errorf("a call over a connection that is older than the end of the certificate: %v", err)
		}
	})
}

// TestNewTLS: files that no peer would accept are refused at the start, by name.
func TestNewTLS(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	good := *ca.node("n1", month)
	change := func(f func(*TLS)) *TLS {
		files := good
		f(&files)
		return &files
	}
	for name, c := range map[string]struct {
		files *TLS
		words []string
	}{
		"another node's":   {ca.node("n2", month), []string{"n2.crt", `certificate of node "n2", not of "n1"`}},
		"expired":          {ca.node("n1x", -time.Second), []string{"n1x.crt", "expired"}},
		"no file":          {change(func(f *TLS) { f.CertFile += "x" }), []string{"n1.crtx", "no such file"}},
		"foreign":          {change(func(f *TLS) { f.CAFile = other.node("n1", month).CAFile }), []string{"n1.crt", "unknown authority"}},
		"another's key":    {change(func(f *TLS) { f.KeyFile = other.node("n1", month).KeyFile }), []string{"n1.key", "does not match"}},
		"key as authority": {change(func(f *TLS) { f.CAFile = f.KeyFile }), []string{"n1.key", "no certificate found"}},
	} {
		_, err := New(Config{Self: func() Peer { return Peer{Name: "n1"} }, TLS: c.files})
		for _, w := range c.words {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v, want %q in the error", name, err, w)
			}
		}
	}
}

// TestCertificateEnds: a node knows when its certificate and its authority's expire, also after the files were replaced.
func TestCertificateEnds(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		began := time.Now().Truncate(time.Second)
		ca, a, _ := tlsPair(t, net, time.Hour)
		plain := start(t, net, member(3))
		if ends := plain.CertificateEnds(); len(ends) > 0 {
			t.Errorf("without TLS: %v", ends)
		}
		authority, err := certs.Parse(ca.pair.Cert)
		if err != nil {
			t.Fatal(err)
		}
		check := func(what string, peer time.Time) {
			t.Helper()
			if ends := a.CertificateEnds(); len(ends) != 2 || !ends[certs.Peer].Equal(peer) ||
				!ends[certs.PeerAuthority].Equal(authority.NotAfter) {
				t.Errorf("%s: %v, want %v and %v", what, ends, peer, authority.NotAfter)
			}
		}
		check("at first", began.Add(time.Hour))
		pass(2 * time.Second)
		ca.node("n1", 2*time.Hour)
		check("after a new certificate", began.Add(2*time.Second+2*time.Hour))
	})
}

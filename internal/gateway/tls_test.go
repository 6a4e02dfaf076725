package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/certs"
)

// testAuthority is a certificate authority, with the current certificate of a gateway.
type testAuthority struct {
	t     testing.TB
	ca    certs.Pair
	roots *x509.CertPool
	cert  atomic.Pointer[tls.Certificate]
}

func newVault(t testing.TB) *testAuthority {
	t.Helper()
	ca, err := certs.NewAuthority(time.Now(), 30)
	if err != nil {
		t.Fatal(err)
	}
	v := &testAuthority{t: t, ca: ca, roots: x509.NewCertPool()}
	v.roots.AppendCertsFromPEM(ca.Cert)
	v.show("n1")
	return v
}

// show issues a certificate for a host, which the gateway presents from now on.
func (v *testAuthority) show(host string) {
	v.t.Helper()
	pair, err := certs.NewServer(v.ca, time.Now(), 30, "n1", []string{host})
	if err != nil {
		v.t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		v.t.Fatal(err)
	}
	v.cert.Store(&cert)
}

// client returns the TLS configuration of a client that knows the gateway by a host.
func (v *testAuthority) client(host string, protos ...string) *tls.Config {
	return &tls.Config{RootCAs: v.roots, ServerName: host, NextProtos: protos}
}

// serveTLS runs a gateway with TLS on pipes until the test ends.
func serveTLS(t testing.TB, f *fake) (*Gateway, *pipes, *testAuthority) {
	// When both ends of a pipe close at once, each waits for the other to read its last record: crypto/tls gives up after 5 s.
	t.Cleanup(func() { pass(5 * time.Second) })
	v := newVault(t)
	f.certificate = v.cert.Load
	g, l := serve(t, f)
	return g, l, v
}

// shake makes a TLS handshake.
func shake(t testing.TB, l *pipes, cfg *tls.Config) (*tls.Conn, error) {
	t.Helper()
	raw, err := l.dial(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	conn := tls.Client(raw, cfg)
	return conn, conn.HandshakeContext(t.Context())
}

func dialTLS(t testing.TB, l *pipes, cfg *tls.Config) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient("passthrough:///pawl", grpc.WithContextDialer(l.dial), grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// web returns a REST client of net/http, which offers HTTP/2 too.
func web(t testing.TB, l *pipes, cfg *tls.Config) *http.Client {
	tr := &http.Transport{DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) { return l.dial(ctx, addr) },
		TLSClientConfig: cfg, ForceAttemptHTTP2: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// With TLS, too, gRPC, REST, the health service and the probes share one listener.
func TestTLSForGRPCAndREST(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, v := serveTLS(t, newFake())
		conn := dialTLS(t, l, v.client("n1"))
		got, err := pawlv1.NewProducerServiceClient(conn).Enqueue(t.Context(), &pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "a",
			Payload: []byte(`{"n":1}`)}})
		if err != nil {
			t.Fatal(err)
		}
		if h, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil ||
			h.Status != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("health = %v, %v, want serving", h, err)
		}
		client := web(t, l, v.client("n1"))
		for path, want := range map[string]string{"/api/v1/tasks/" + got.Task.TaskId: `"payload":{"n":1}`, "/healthz": "ok",
			"/readyz": `"leader":"n1"`} {
			resp, err := client.Get("https://localhost" + path)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != 200 || resp.Proto != "HTTP/1.1" || !strings.Contains(string(body), want) {
				t.Errorf("%s: %s %s, %s, want %q", path, resp.Proto, resp.Status, body, want)
			}
		}
	})
}

// The protocol after the handshake is one that the client supports, preferably HTTP/1.1. A client that supports neither is refused.
func TestALPN(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, v := serveTLS(t, newFake())
		for _, c := range []struct {
			offers []string
			want   string
			ok     bool
		}{
			{[]string{"h2"}, "h2", true}, {[]string{"grpc-exp", "h2"}, "h2", true}, {[]string{"http/1.1"}, "http/1.1", true},
			{[]string{"h2", "http/1.1"}, "http/1.1", true}, {[]string{"http/1.1", "h2"}, "http/1.1", true}, {nil, "", true},
			{[]string{"imap"}, "", false},
		} {
			conn, err := shake(t, l, v.client("n1", c.offers...))
			if got := conn.ConnectionState().NegotiatedProtocol; got != c.want || (err == nil) != c.ok {
				t.Errorf("offered %q: negotiated %q, %v, want %q, ok %v", c.offers, got, err, c.want, c.ok)
			}
		}
	})
}

// A client without ALPN is routed by its first bytes.
func TestTLSWithoutALPN(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, v := serveTLS(t, newFake())
		conn, err := shake(t, l, v.client("n1"))
		if err != nil {
			t.Fatal(err)
		}
		go io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != 200 {
			t.Errorf("HTTP/1.1 response = %v, %v", resp, err)
		}
		conn, err = shake(t, l, v.client("n1"))
		if err != nil {
			t.Fatal(err)
		}
		go io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		head := make([]byte, 4)
		if _, err := io.ReadFull(conn, head); err != nil || head[3] != 4 {
			t.Errorf("HTTP/2 frame = %v, %v, want settings", head, err)
		}
	})
}

func TestTLSVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, v := serveTLS(t, newFake())
		for max, want := range map[uint16]uint16{0: tls.VersionTLS13, tls.VersionTLS13: tls.VersionTLS13,
			tls.VersionTLS12: tls.VersionTLS12, tls.VersionTLS11: 0, tls.VersionTLS10: 0} {
			for _, protos := range [][]string{{"h2"}, {"http/1.1"}, nil} {
				cfg := v.client("n1", protos...)
				cfg.MinVersion, cfg.MaxVersion = tls.VersionTLS10, max
				conn, err := shake(t, l, cfg)
				if got := conn.ConnectionState().Version; (err == nil) != (want != 0) || err == nil && got != want {
					t.Errorf("at most %s, %q: version %s, %v, want %s", tls.VersionName(max), protos, tls.VersionName(got), err,
						tls.VersionName(want))
				}
				if want == 0 && !strings.Contains(fmt.Sprint(err), "protocol version") {
					t.Errorf("at most %s: %v, want an error about the protocol version", tls.VersionName(max), err)
				}
			}
		}
	})
}

// A TLS 1.2 client gets a suite with authenticated encryption, or none.
func TestTLSSuites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, v := serveTLS(t, newFake())
		for _, protos := range [][]string{{"h2"}, {"http/1.1"}, nil} {
			for _, suite := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
				cfg := v.client("n1", protos...)
				cfg.MaxVersion, cfg.CipherSuites = tls.VersionTLS12, []uint16{suite.ID}
				_, err := shake(t, l, cfg)
				if !strings.Contains(suite.Name, "_GCM_") && !strings.Contains(suite.Name, "_CHACHA20_") && err == nil ||
					suite.ID == tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 && err != nil {
					t.Errorf("%s with %q: handshake error %v", suite.Name, protos, err)
				}
			}
		}
	})
}

// Responses over TLS, including errors, tell browsers to use TLS only, and those over plaintext don't.
func TestStrictTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, encrypted, v := serveTLS(t, newFake())
		_, plain := serve(t, newFake())
		for _, path := range []string{"/api/v1/queues", "/healthz", "/nothing"} {
			for _, c := range []struct {
				client *http.Client
				url    string
				want   string
			}{{web(t, plain, nil), "http://localhost", ""}, {web(t, encrypted, v.client("n1")), "https://n1", "max-age=31536000"}} {
				a, err := c.client.Get(c.url + path)
				if err != nil {
					t.Fatal(err)
				}
				a.Body.Close()
				if got := a.Header.Get("Strict-Transport-Security"); got != c.want {
					t.Errorf("%s%s: Strict-Transport-Security = %q, want %q", c.url, path, got, c.want)
				}
			}
		}
	})
}

// A client that does not trust the authority, or expects another host, sends nothing.
func TestTLSWrongServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, v := serveTLS(t, newFake())
		foreign := v.client("n1")
		foreign.RootCAs = newVault(t).roots
		for want, cfg := range map[string]*tls.Config{"unknown authority": foreign, "valid for n1, not n2": v.client("n2")} {
			_, err := pawlv1.NewProducerServiceClient(dialTLS(t, l, cfg)).Enqueue(t.Context(),
				&pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "a"}})
			if !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("gRPC: %v, want %q", err, want)
			}
			if _, err := web(t, l, cfg).Get("https://n1/healthz"); !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("REST: %v, want %q", err, want)
			}
		}
	})
}

// A plaintext client is told that TLS is required, and nothing is served.
func TestPlaintextAtTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, _ := serveTLS(t, newFake())
		for _, request := range []string{"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
			"POST /api/v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Length: 50000\r\n\r\n" + strings.Repeat("x", 50_000),
			"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"} {
			c, _ := l.dial(t.Context(), "")
			wrote := make(chan error, 1)
			go func() {
				_, err := io.WriteString(c, request)
				wrote <- err
			}()
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatalf("%.20q: %v", request, err)
			}
			body, err := io.ReadAll(resp.Body)
			if err := <-wrote; err != nil { // TCP would discard the response
				t.Errorf("request %.20q was not read to its end: %v", request, err)
			}
			if err != nil || resp.StatusCode != 400 || resp.Header.Get("Content-Type") != "application/problem+json" ||
				!strings.Contains(string(body), "this port requires TLS: use https://") {
				t.Errorf("request %.20q: %s: %s, %v, want status 400", request, resp.Status, body, err)
			}
			c.Close()
		}
		for _, noise := range []string{"\x00\x00\x00\x00\x00\x00", "nonsense"} {
			c, _ := l.dial(t.Context(), "")
			go io.WriteString(c, noise)
			if b, err := io.ReadAll(c); len(b) > 0 && strings.Contains(string(b), "HTTP") {
				t.Errorf("noise got the response %q, %v", b, err)
			}
			c.Close()
		}
	})
}

// The next handshake uses the new certificate, and existing connections continue.
func TestTLSReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, v := serveTLS(t, newFake())
		enqueue := func(conn *grpc.ClientConn) error {
			_, err := pawlv1.NewProducerServiceClient(conn).Enqueue(t.Context(), &pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "a"}})
			return err
		}
		old := dialTLS(t, l, v.client("n1"))
		if err := enqueue(old); err != nil {
			t.Fatal(err)
		}
		v.show("n2")
		if err := errors.Join(enqueue(old), enqueue(dialTLS(t, l, v.client("n2")))); err != nil {
			t.Error(err)
		}
		if err := enqueue(dialTLS(t, l, v.client("n1"))); err == nil {
			t.Error("a new connection got the old certificate")
		}
		for _, proto := range []string{"h2", "http/1.1"} {
			cfg := v.client("n2", proto)
			cfg.ClientSessionCache = tls.NewLRUClientSessionCache(1)
			for range 2 {
				conn, err := shake(t, l, cfg)
				if err != nil || conn.ConnectionState().DidResume {
					t.Errorf("a TLS session was resumed without a certificate: %v", err)
				}
				conn.SetReadDeadline(time.Now().Add(time.Second))
				conn.Read(make([]byte, 1)) // a session ticket would arrive now
			}
		}
	})
}

// A stalled handshake is disconnected in time, and does not delay a shutdown.
func TestTLSStalledHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l, v := serveTLS(t, newFake())
		hello := "\x16\x03\x01\x02\x00\x01" // the beginning of a client's first message
		silent, _ := l.dial(t.Context(), "")
		halfway, _ := l.dial(t.Context(), "")
		go io.WriteString(halfway, hello)
		mute, err := shake(t, l, v.client("n1", "h2")) // sends nothing after the handshake
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		for name, c := range map[string]net.Conn{"silent": silent, "halfway": halfway, "mute": mute} {
			if _, err := io.ReadAll(c); err != nil && name != "halfway" {
				t.Errorf("connection %s: %v", name, err)
			}
		}
		if took := time.Since(start); took != headerTime {
			t.Errorf("stalled handshakes were disconnected after %v, want %v", took, headerTime)
		}
		halfway, _ = l.dial(t.Context(), "")
		go io.WriteString(halfway, hello)
		busy, err := shake(t, l, v.client("n1", "http/1.1")) // never reads
		if err != nil {
			t.Fatal(err)
		}
		go io.WriteString(busy, "POST /api/v1/claim HTTP/1.1\r\nHost: localhost\r\nContent-Length: 29\r\n\r\n"+
			`{"queues":["q"],"wait":"30s"}`)
		synctest.Wait()
		start = time.Now()
		g.Abort()
		synctest.Wait()
		if took := time.Since(start); took != 0 {
			t.Errorf("Abort took %v", took)
		}
		if _, err := io.ReadAll(halfway); err != nil {
			t.Errorf("connection halfway through the handshake, after Abort: %v", err)
		}
	})
}

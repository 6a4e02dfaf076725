package pawl_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/internal/certs"
	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// startTLS runs three nodes with TLS. Each has a certificate for its name, unless hosts has another name for it.
func startTLS(t *testing.T, hosts map[string]string) (*nodes, *tls.Config) {
	t.Helper()
	ca, err := certs.NewAuthority(time.Now(), 30)
	if err != nil {
		t.Fatal(err)
	}
	c := startNodesWith(t, func(node string) []grpc.ServerOption {
		host := node
		if hosts[node] != "" {
			host = hosts[node]
		}
		pair, err := certs.NewServer(ca, time.Now(), 30, node, []string{host})
		if err != nil {
			t.Fatal(err)
		}
		cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		return []grpc.ServerOption{grpc.Creds(credentials.NewServerTLSFromCert(&cert))}
	})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.Cert)
	return c, &tls.Config{RootCAs: roots}
}

// wire records how connections start.
type wire struct {
	dial func(context.Context, string) (net.Conn, error)

	mu    sync.Mutex
	first map[string]string // the first byte sent to an address, for each connection
}

func (w *wire) connect(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := w.dial(ctx, addr)
	return &tapped{Conn: conn, w: w, addr: addr}, err
}

type tapped struct {
	net.Conn
	w    *wire
	addr string
	said bool
}

func (c *tapped) Write(b []byte) (int, error) {
	if !c.said && len(b) > 0 {
		c.said = true
		c.w.mu.Lock()
		c.w.first[c.addr] += string(b[:1])
		c.w.mu.Unlock()
	}
	return c.Conn.Write(b)
}

// Connections to the leaders that a map names are like those to the addresses of Dial: TLS with the same roots, each
// node under its own name. A node with another name is not used, and nothing is ever sent in plaintext.
func TestTLSToEachNode(t *testing.T) {
	for _, addr := range []string{"n1:7295", "n1:7295,n1:7295", "https://n1:7295"} {
		synctest.Test(t, func(t *testing.T) {
			c, roots := startTLS(t, map[string]string{"n3": "n1"})
			w := &wire{dial: c.dial, first: map[string]string{}}
			c.lead(1, "n2")
			client := c.client(addr, pawl.DialOptions{TLS: roots, Dialer: w.connect})
			ref, err := client.Enqueue(t.Context(), welcome{})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			c.wantTaken("the first call", "n1 Enqueue, n1 GetMap, n2 Check")
			if _, err := client.Task(t.Context(), ref.ID); err != nil {
				t.Error(err)
			}
			c.wantTaken("the second call", "n2 GetTask")

			c.lead(1, "n3")
			for range 3 {
				c.must(client)
				time.Sleep(time.Second)
			}
			if got := c.took(); strings.Contains(got, "n3") {
				t.Errorf("a node with the certificate of another was called: %s", got)
			}
			if log := c.logged(); !strings.Contains(log, "can't be reached directly") || !strings.Contains(log, "valid for n1, not n3") {
				t.Errorf("the log does not mention the wrong certificate: %s", log)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.first["n1:7295"] == "" || w.first["n2:7295"] == "" || w.first["n3:7295"] == "" {
				t.Errorf("the client did not dial all nodes: %q", w.first)
			}
			for addr, first := range w.first {
				if strings.Trim(first, "\x16") != "" {
					t.Errorf("%s: connections began with %q, want only TLS handshakes", addr, first)
				}
			}
		})
	}
}

// A client with TLS sends nothing to a server without it, and a client with https:// uses TLS.
func TestTLSNeverFallsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startNodes(t)
		w := &wire{dial: c.dial, first: map[string]string{}}
		for addr, opts := range map[string][]pawl.DialOptions{"n1:7295": {pawl.DialOptions{TLS: &tls.Config{}, Plaintext: true}},
			"https://n2:7295": {pawl.DialOptions{Plaintext: true}}, "https://n1:7295,https://n3:7295": nil} {
			client := c.client(addr, append(opts, pawl.DialOptions{Dialer: w.connect, RetryFor: time.Minute})...)
			if _, err := client.Enqueue(t.Context(), welcome{}); !errors.Is(err, pawltype.ErrUnavailable) {
				t.Errorf("%s: %v, want ErrUnavailable", addr, err)
			}
			client.Close()
		}
		if got := c.took(); got != "" {
			t.Errorf("the nodes got the calls %s, want none", got)
		}
		for addr, first := range w.first {
			if strings.Trim(first, "\x16") != "" {
				t.Errorf("%s: connections began with %q, want only TLS handshakes", addr, first)
			}
		}
	})
}

// A client without TLS gets an error that says that the server may require it, whatever kind of server it is.
func TestPlaintextToTLS(t *testing.T) {
	for name, answer := range map[string]string{"a refusal of HTTP/1.1": "HTTP/1.1 400 Bad Request\r\n\r\n",
		"an alert of TLS": "\x15\x03\x01\x00\x02\x02\x46"} {
		synctest.Test(t, func(t *testing.T) {
			dial := func(context.Context, string) (net.Conn, error) {
				here, there := net.Pipe()
				go io.WriteString(there, answer)
				go io.Copy(io.Discard, there) // until the client closes
				return here, nil
			}
			client, err := pawl.Dial("n1", pawl.DialOptions{Dialer: dial, RetryFor: -1})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			_, err = client.Task(t.Context(), "x")
			if !errors.Is(err, pawltype.ErrUnavailable) || !strings.Contains(err.Error(),
				"if it requires TLS, use https:// or DialOptions.TLS") {
				t.Errorf("%s: %v, want ErrUnavailable that mentions TLS", name, err)
			}
		})
	}
}

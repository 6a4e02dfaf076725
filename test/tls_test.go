package test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/pawltype"
)

// trust is a CA and a server certificate signed by it for this machine, created by `pawl cert`. Nil: plaintext.
type trust struct {
	ca, cert, key string // files
	roots         *x509.CertPool
}

func newTrust(t testing.TB) *trust {
	t.Helper()
	skipIfShort(t)
	dir := t.TempDir()
	for _, args := range []string{"cert ca --out " + dir, "cert server s1 --host 127.0.0.1,localhost --ca " + dir + " --out " + dir} {
		if out, err := pawlOutput(t, args); err != nil {
			t.Fatalf("pawl %s: %v, %s", args, err, out)
		}
	}
	own := &trust{ca: filepath.Join(dir, "ca.crt"), cert: filepath.Join(dir, "s1.crt"), key: filepath.Join(dir, "s1.key"),
		roots: x509.NewCertPool()}
	file, err := os.ReadFile(own.ca)
	if err != nil || !own.roots.AppendCertsFromPEM(file) {
		t.Fatal("the CA certificate can't be read:", err)
	}
	return own
}

// pawlOutput runs pawl and returns its output.
func pawlOutput(t testing.TB, args string) (string, error) {
	t.Helper()
	cmd := command(t, strings.Fields(args)...)
	err := cmd.Run()
	return cmd.Stdout.(*lockedBuffer).String(), err
}

func (c *trust) flags() []string {
	if c == nil {
		return nil
	}
	return []string{"--tls-cert", c.cert, "--tls-key", c.key}
}

func (c *trust) credentials() credentials.TransportCredentials {
	if c == nil {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(c.config())
}

func (c *trust) options() []pawl.DialOptions {
	if c == nil {
		return nil
	}
	return []pawl.DialOptions{{TLS: c.config()}}
}

func (c *trust) config() *tls.Config { return &tls.Config{RootCAs: c.roots} }

// web returns a REST client based on net/http.
func (c *trust) web(t testing.TB, change func(*tls.Config)) *http.Client {
	cfg := c.config()
	change(cfg)
	tr := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: startLimit}
}

// become replaces our files with those of another server's certificate.
func (c *trust) become(t testing.TB, other *trust) {
	t.Helper()
	for from, to := range map[string]string{other.cert: c.cert, other.key: c.key} {
		content, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func enqueueOne(client *pawl.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	_, err := client.Enqueue(ctx, pawl.RawTask{Type: "a", Payload: []byte("1")})
	return err
}

// TestTLS: REST, gRPC and the command line work over TLS, and nothing works without it.
func TestTLS(t *testing.T) {
	ours, foreign := newTrust(t), newTrust(t)
	s := newServer(t, ours.flags()...)
	s.start()
	asIs := func(*tls.Config) {}

	for path, want := range map[string]string{"/healthz": "ok", "/readyz": "leader", "/api/v1/queues": "items"} {
		resp, err := ours.web(t, asIs).Get("https://" + s.addr + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 || resp.Proto != "HTTP/1.1" || resp.TLS.Version != tls.VersionTLS13 ||
			!strings.Contains(string(body), want) {
			t.Errorf("%s: %s %s with %s: %s, %v, want %q", path, resp.Proto, resp.Status, tls.VersionName(resp.TLS.Version), body, err,
				want)
		}
	}
	body := bytes.NewBufferString(`{"type":"a","payload":1}`)
	if resp, err := ours.web(t, func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }).Post("https://"+s.addr+"/api/v1/tasks",
		"application/json", body); err != nil || resp.StatusCode != 202 {
		t.Errorf("enqueue over REST with TLS 1.2: %v, %v", resp, err)
	}
	if err := enqueueOne(s.dial(ours.options()...)); err != nil {
		t.Errorf("enqueue over gRPC: %v", err)
	}
	if out, err := pawlOutput(t, "queue ls --tls-ca "+ours.ca+" --server https://"+s.addr); err != nil ||
		!strings.Contains(out, "default") {
		t.Errorf("pawl queue ls: %v, %s", err, out)
	}

	for name, c := range map[string]struct {
		change func(*tls.Config)
		want   string
	}{
		"TLS 1.1":           {func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS11, tls.VersionTLS11 }, "protocol version"},
		"another authority": {func(c *tls.Config) { c.RootCAs = foreign.roots }, "unknown authority"},
		"another host":      {func(c *tls.Config) { c.ServerName = "pawl.example.com" }, "not pawl.example.com"},
	} {
		if _, err := ours.web(t, c.change).Get("https://" + s.addr + "/healthz"); !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("REST with %s: %v, want %q", name, err, c.want)
		}
		cfg := ours.config()
		c.change(cfg)
		if err := enqueueOne(s.dial(pawl.DialOptions{TLS: cfg})); !errors.Is(err, pawltype.ErrUnavailable) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("gRPC with %s: %v, want %q", name, err, c.want)
		}
	}
	if out, err := pawlOutput(t, "queue ls --tls-ca "+foreign.ca+" --server "+s.addr); err == nil ||
		!strings.Contains(out, "give the CA with --tls-ca") {
		t.Errorf("pawl queue ls with another CA: %v, %s", err, out)
	}

	resp, err := http.Get("http://" + s.addr + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	said, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != 400 || !strings.Contains(string(said), "this port requires TLS: use https://") {
		t.Errorf("REST without TLS: %s, %s", resp.Status, said)
	}
	if err := enqueueOne(s.dial()); !errors.Is(err, pawltype.ErrUnavailable) || !strings.Contains(err.Error(),
		"if it requires TLS, use https:// or DialOptions.TLS") {
		t.Errorf("gRPC without TLS: %v", err)
	}
}

// reloadLimit is the time in which a changed certificate must be picked up: the server checks once a second.
const reloadLimit = 10 * time.Second

// TestTLSReload: new connections see a changed certificate, existing ones continue, and a broken file changes nothing.
func TestTLSReload(t *testing.T) {
	ours, next := newTrust(t), newTrust(t)
	s := newServer(t, ours.flags()...)
	s.start()
	shows := func(c *trust) bool { return enqueueOne(s.dial(c.options()...)) == nil }
	old := s.dial(ours.options()...)
	waits := make(chan error, 1)
	go func() { // a long poll that begins before and ends after
		claimed, err := claims.New(old).Claim(context.Background(), claims.Request{Queues: pawl.Strict{"later"}, Max: 1, Wait: time.Minute})
		if err == nil && len(claimed) != 1 {
			err = fmt.Errorf("%d claims", len(claimed))
		}
		waits <- err
	}()
	if err := enqueueOne(old); err != nil {
		t.Fatal(err)
	}

	ours.become(t, next)
	eventually(t, "new connections see the new certificate", reloadLimit, func() bool { return shows(next) })
	if shows(ours) {
		t.Error("a new connection got the old certificate")
	}
	if !strings.Contains(s.logSince(0), "certificate files reloaded") {
		t.Error("the reload of the certificate was not logged")
	}
	if _, err := old.Enqueue(context.Background(), pawl.RawTask{Type: "a"}, pawl.Queue("later")); err != nil {
		t.Errorf("enqueue on an existing connection: %v", err)
	}
	if err := <-waits; err != nil {
		t.Errorf("a long poll on an existing connection: %v", err)
	}

	if err := os.WriteFile(ours.cert, []byte("half a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the log names the broken file", reloadLimit, func() bool {
		if !shows(next) {
			t.Error("a broken certificate file is in use")
		}
		return strings.Contains(s.logSince(0), "changed certificate files can't be used") && strings.Contains(s.logSince(0), "s1.crt")
	})
}

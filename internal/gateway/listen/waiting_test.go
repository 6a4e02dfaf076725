package listen

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/pawlq/pawl/internal/certs"
	"github.com/pawlq/pawl/internal/task"
)

// waitingFixture is a node that waits, and what its clients need.
type waitingFixture struct {
	t       *testing.T
	pipe    *bufconn.Listener
	waiting *Waiting
	cfg     Config
	trusts  *tls.Config // nil: plaintext
}

func startWaiting(t *testing.T, cfg Config, encrypted bool) *waitingFixture {
	t.Helper()
	f := &waitingFixture{t: t, pipe: bufconn.Listen(64 << 10)}
	cfg.Logger = slog.New(slog.DiscardHandler)
	if encrypted {
		authority, err := certs.NewAuthority(time.Now(), 9)
		if err != nil {
			t.Fatal(err)
		}
		server, err := certs.NewServer(authority, time.Now(), 9, "n1", []string{"localhost"})
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.X509KeyPair(server.Cert, server.Key)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Certificate = func() *tls.Certificate { return &pair }
		f.trusts = &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost", MinVersion: tls.VersionTLS12}
		f.trusts.RootCAs.AppendCertsFromPEM(authority.Cert)
	}
	f.cfg = cfg
	other := func(to http.ResponseWriter, r *http.Request, refusal *task.Error) bool {
		if r.URL.Path == "/other" {
			http.Error(to, "<Other>"+refusal.Message, http.StatusServiceUnavailable)
		}
		return r.URL.Path == "/other"
	}
	f.waiting = Wait(cfg, f.pipe, "/pawl", func() string { return "the node waits" }, other)
	return f
}

func (f *waitingFixture) dial(ctx context.Context) (net.Conn, error) { return f.pipe.DialContext(ctx) }

// get requests a path, and returns the status and the body.
func (f *waitingFixture) get(path string) (int, string) {
	f.t.Helper()
	scheme := "http"
	transport := &http.Transport{TLSClientConfig: f.trusts, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return f.dial(ctx)
	}}
	defer transport.CloseIdleConnections()
	if f.trusts != nil {
		scheme = "https"
	}
	a, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Get(scheme + "://localhost" + path)
	if err != nil {
		f.t.Fatal(err)
	}
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return a.StatusCode, strings.TrimSpace(string(body))
}

func (f *waitingFixture) client() *grpc.ClientConn {
	f.t.Helper()
	creds := insecure.NewCredentials()
	if f.trusts != nil {
		creds = credentials.NewTLS(f.trusts)
	}
	c, err := grpc.NewClient("passthrough:localhost", grpc.WithTransportCredentials(creds), grpc.WithContextDialer(func(ctx context.Context,
		_ string) (net.Conn, error) {
		return f.dial(ctx)
	}))
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

// While a node waits, it is alive and not ready, and every other request and call gets unavailable with the reason:
// with and without TLS, and below a base path. The server that follows gets the next connections, and those of the
// waiting node end.
func TestWaitingNodeAnswers(t *testing.T) {
	for _, encrypted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := startWaiting(t, Config{}, encrypted)
			refusal := `{"type":"urn:pawl:error:unavailable","title":"Unavailable","status":503,"detail":"the node ` +
				`waits","code":"unavailable","retry_after":"1s"}`
			for path, want := range map[string]string{
				"/healthz": `200 {"status":"ok"}`, "/readyz": `503 {"status":"the node waits"}`, "/pawl/healthz": `200 {"status":"ok"}`,
				"/pawl/readyz": `503 {"status":"the node waits"}`, "/": "503 " + refusal, "/api/v1/tasks": "503 " + refusal,
				"/metrics": "503 " +
					refusal, "/healthz/x": "503 " + refusal,
				"/other": "503 <Other>the node waits",
			} {
				if code, body := f.get(path); fmt.Sprint(code, " ", body) != want {
					t.Errorf("TLS %v: %s: %d %s, want %s", encrypted, path, code, body, want)
				}
			}
			c := f.client()
			health := grpc_health_v1.NewHealthClient(c)
			if got, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil ||
				got.GetStatus() != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
				t.Errorf("TLS %v: gRPC's health check: %v, %v, want that it is not serving", encrypted, got, err)
			}
			watch, err := health.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := watch.Recv(); err != nil || got.GetStatus() != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
				t.Errorf("TLS %v: a watch of gRPC's health: %v, %v, want that it is not serving", encrypted, got, err)
			}
			_, watched := watch.Recv()
			for what, err := range map[string]error{
				"a watch of health": watched,
				"a call": c.Invoke(t.Context(), "/pawl.v1.ProducerService/Enqueue", &grpc_health_v1.HealthCheckRequest{},
					&grpc_health_v1.HealthCheckResponse{}),
			} {
				if st := status.Convert(err); st.Code() != codes.Unavailable || st.Message() != "the node waits" || len(st.Details()) != 1 {
					t.Errorf("TLS %v: %s got %v with details %v, want unavailable with one", encrypted, what, err, st.Details())
				}
			}

			listener := f.waiting.Next()
			next := New(f.cfg, grpc.NewServer(GRPCOptions()...), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "serves")
			}))
			served := make(chan error, 1)
			go func() { served <- next.Serve(listener) }()
			if code, body := f.get("/readyz"); code != http.StatusOK || body != "serves" {
				t.Errorf("TLS %v: the server that follows: %d %s", encrypted, code, body)
			}
			f.waiting.Drained()
			err = c.Invoke(t.Context(), "/pawl.v1.ProducerService/Enqueue", &grpc_health_v1.HealthCheckRequest{},
				&grpc_health_v1.HealthCheckResponse{}, grpc.WaitForReady(true))
			if status.Code(err) != codes.Unimplemented {
				t.Errorf("TLS %v: a client from before got %v, want the answer of the server that follows", encrypted, err)
			}
			_ = c.Close()
			next.Shutdown(t.Context())
			if err := <-served; err != nil {
				t.Error(err)
			}
			f.waiting.done.Wait()
		})
	}
}

// A waiting node has the limits of one that serves: on connections, and on the time for the first bytes. Once it is closed nobody gets in.
func TestWaitingNodeHasLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startWaiting(t, Config{MaxConns: 2}, false)
		closedAfter := func(c net.Conn) time.Duration {
			began := time.Now()
			_, err := c.Read(make([]byte, 1))
			if err == nil {
				t.Error("a connection that said nothing got an answer")
			}
			return time.Since(began)
		}
		var conns []net.Conn
		for range 3 {
			c, err := f.dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			conns = append(conns, c)
		}
		if d := closedAfter(conns[2]); d != 0 {
			t.Errorf("a third connection was closed after %v, want at once: there may be two", d)
		}
		if d := closedAfter(conns[0]); d != headerTimeout {
			t.Errorf("a silent connection was closed after %v, want %v", d, headerTimeout)
		}
		f.waiting.Close()
		if c, err := f.dial(t.Context()); err == nil {
			_ = c.Close()
			t.Error("a node that has given up accepts connections")
		}
	})
}

package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/auth/bearer"
	"github.com/pawlq/pawl/internal/certs"
	"github.com/pawlq/pawl/internal/gateway/listen"
	"github.com/pawlq/pawl/internal/store"
)

// certGateway is a gateway that accepts tokens and client certificates, which have their own authority.
type certGateway struct {
	*tokenSet
	t           *testing.T
	l           *pipes
	serverCerts *testAuthority
	ca          certs.Pair
	pool        atomic.Pointer[certs.Trust]
}

func newGuild(t *testing.T, required bool) *certGateway {
	g := &certGateway{tokenSet: newTokenSet(), t: t}
	g.ca = newAuthority(g.t)
	g.trust(g.ca)
	f := newFake()
	f.auth, f.clients = g.auth, listen.ClientCertificates{Authorities: g.pool.Load, Required: required}
	_, g.l, g.serverCerts = serveTLS(t, f)
	g.publish()
	return g
}

func newAuthority(t *testing.T) certs.Pair {
	t.Helper()
	ca, err := certs.NewAuthority(time.Now().AddDate(0, 0, -10), 1000)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func (g *certGateway) trust(ca certs.Pair) {
	trust, err := certs.ParseTrust(ca.Cert)
	if err != nil {
		g.t.Fatal(err)
	}
	g.pool.Store(trust)
}

// certify issues a certificate by an authority, valid for two more seconds.
func certify(t *testing.T, ca certs.Pair, name string, hosts ...string) *tls.Certificate {
	t.Helper()
	pair, err := certs.NewClient(ca, time.Now().Add(2*time.Second-24*time.Hour), 1, name, hosts)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return &cert
}

// admit adds a token for a certificate, with or without an expiry.
func (g *certGateway) admit(name, certificate string, r auth.Rights, until ...time.Time) {
	t := auth.Token{Name: name, Rights: r, Certificate: certificate, Hash: auth.HashOfCertificate(certificate),
		CreatedAt: store.TimeOf(time.Now())}
	for _, end := range until {
		t.ExpiresAt = store.TimeOf(end)
	}
	g.tokens = append(g.tokens, t)
	g.publish()
}

// revoke revokes a token.
func (g *certGateway) revoke(name string) {
	g.tokens = slices.DeleteFunc(slices.Clone(g.tokens), func(t auth.Token) bool { return t.Name == name })
	g.publish()
}

// config returns the TLS configuration of a client that presents a certificate; nil: it presents none.
func (g *certGateway) config(cert *tls.Certificate) *tls.Config {
	c := g.serverCerts.client("n1")
	if cert != nil {
		// Present it even to a server that does not ask for one by that authority.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	return c
}

// me returns, over both protocols, the identity of a client with a certificate or a token or both, or the error if the client is not
// identified.
func (g *certGateway) me(cert *tls.Certificate, token string) string {
	g.t.Helper()
	client := web(g.t, g.l, g.config(cert))
	r, err := http.NewRequest("GET", "https://n1/api/v1/me", nil)
	if err != nil {
		g.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(r)
	if err != nil {
		return "no connection"
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	client.CloseIdleConnections()

	conn := dialTLS(g.t, g.l, g.config(cert))
	defer conn.Close()
	who, err := pawlv1.NewAccessServiceClient(conn).WhoAmI(with(g.t.Context(), token, ""), &pawlv1.WhoAmIRequest{})
	switch {
	case (err == nil) != (resp.StatusCode == 200) || err == nil && !strings.Contains(string(body), fmt.Sprintf("%q", who.GetName())):
		g.t.Errorf("WhoAmI over REST = %s, over gRPC %v, %v", body, who, err)
	case err != nil && (status.Code(err) != codes.Unauthenticated || resp.StatusCode != http.StatusUnauthorized):
		g.t.Errorf("refused with status %d and %v, want unauthenticated", resp.StatusCode, err)
	}
	if err != nil {
		return err.Error()
	}
	return who.GetName() + " by " + strings.TrimPrefix(who.GetCertificate(), "uri:pawl://client/")
}

func (g *certGateway) is(what, got, want string) {
	g.t.Helper()
	if !strings.Contains(got, want) {
		g.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// A client is identified as the token for its certificate, over both protocols. One with an unknown certificate, or none, is not
// identified.
func TestClientCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuild(t, false)
		team := auth.Rights{Namespace: "team", Roles: auth.Produce}
		g.admit("billing", "uri:pawl://client/billing", team)
		g.admit("host", "dns:mail.example.com", team)
		g.admit("subject", "subject:CN=plain", team)
		g.admit("late", "uri:pawl://client/late", team, time.Now())
		secret := g.add("oncall", auth.Rights{Namespace: "team", Roles: auth.Operate})
		billing := certify(g.t, g.ca, "billing")

		g.is("by its URI", g.me(billing, ""), "billing by billing")
		g.is("by a host", g.me(certify(g.t, g.ca, "other", "mail.example.com"), ""), "host by dns:mail.example.com")
		g.is("by its subject", g.me(certify(g.t, g.ca, "plain"), ""), "subject by subject:CN=plain")
		g.is("a token that was sent decides", g.me(billing, secret), "oncall by ")
		g.is("also if it is nobody's", g.me(billing, bearer.New()), "the token is not known")
		g.is("also if it is none", g.me(billing, "x"), "malformed token")
		g.is("also if it is empty", g.me(billing, " "), "the scheme Bearer has no token")
		g.is("one without a token", g.me(certify(g.t, g.ca, "nobody"), ""),
			"no token exists for the certificate (uri:pawl://client/nobody subject:CN=nobody)")
		g.is("that of two tokens", g.me(certify(g.t, g.ca, "plain", "mail.example.com"), ""), `is that of two tokens, "host" and "subject"`)
		g.is("a token that has expired", g.me(certify(g.t, g.ca, "late"), ""),
			`token "late", of the certificate "uri:pawl://client/late": it expired`)
		g.is("another authority", g.me(certify(g.t, newAuthority(g.t), "billing"), ""), "no connection")
		g.is("none", g.me(nil, ""), "a token is required")
		g.is("a token without a certificate", g.me(nil, secret), "oncall by ")

		server := g.serverCerts.cert.Load()
		g.is("a server's, by the authority of servers", g.me(server, ""), "no connection")
	})
}

// With --client-auth require, a client without a certificate fails the handshake, whatever its token.
func TestClientCertificatesRequired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuild(t, true)
		secret := g.add("oncall", auth.Rights{Namespace: "team", Roles: auth.Operate})
		g.is("a certificate alone", g.me(certify(g.t, g.ca, "billing"), ""), "no token exists for the certificate")
		g.is("a certificate and a token", g.me(certify(g.t, g.ca, "billing"), secret), "oncall by ")
		g.is("a token alone", g.me(nil, secret), "no connection")
	})
}

// A connection outlives its certificate: each call is checked again, long calls end, and sessions are not resumed.
func TestClientCertificatesEnd(t *testing.T) {
	for what, end := range map[string]func(*certGateway, *tls.Certificate){
		"the token is revoked":         func(g *certGateway, _ *tls.Certificate) { g.revoke("billing") },
		"the certificate has expired":  func(*certGateway, *tls.Certificate) { time.Sleep(2*time.Second + 1) },
		"its authority is not trusted": func(g *certGateway, _ *tls.Certificate) { g.trust(newAuthority(g.t)) },
		"the certificate is revoked":   func(g *certGateway, c *tls.Certificate) { g.revokeCertificate(c) },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGuild(t, false)
				watching(t, g)
				g.admit("billing", "uri:pawl://client/billing", auth.Rights{Namespace: "team", Roles: auth.Produce | auth.Consume})
				client := certify(g.t, g.ca, "billing")
				config := g.config(client)
				config.ClientSessionCache = tls.NewLRUClientSessionCache(10)
				conn := dialTLS(t, g.l, config)
				whoAmI := func(c *grpc.ClientConn) codes.Code {
					_, err := pawlv1.NewAccessServiceClient(c).WhoAmI(t.Context(), &pawlv1.WhoAmIRequest{})
					return status.Code(err)
				}
				stream, err := pawlv1.NewWorkerServiceClient(conn).Work(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if err := stream.Send(&pawlv1.WorkRequest{Hello: &pawlv1.WorkHello{Queues: []*pawlv1.QueueShare{{Queue: "mail"}},
					Worker: "w"},
					Grant: 1}); err != nil {
					t.Fatal(err)
				}
				if code := whoAmI(conn); code != codes.OK {
					t.Fatalf("call before the end: %v", code)
				}
				resumed := config.Clone()
				resumed.NextProtos = []string{"h2"}
				if _, err := shake(t, g.l, resumed); err != nil {
					t.Fatal(err)
				}
				end(g, client)
				g.publish()
				began := time.Now()
				if _, err := stream.Recv(); status.Code(err) != codes.Unauthenticated {
					t.Errorf("the stream ended with %v, want unauthenticated", err)
				}
				if took := time.Since(began); took > 2*time.Second { // checked every second
					t.Errorf("the stream ended after %v", took)
				}
				if code := whoAmI(conn); code != codes.Unauthenticated {
					t.Errorf("call over the existing connection: %v, want unauthenticated", code)
				}
				if c, err := shake(t, g.l, resumed); err == nil && c.ConnectionState().DidResume {
					t.Error("a TLS session was resumed")
				}
			})
		})
	}
}

// revokeCertificate adds a certificate to its authority's list.
func (g *certGateway) revokeCertificate(c *tls.Certificate) {
	g.t.Helper()
	leaf, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		g.t.Fatal(err)
	}
	file, err := certs.Revoke(g.ca, time.Now(), []*x509.Certificate{leaf})
	if err != nil {
		g.t.Fatal(err)
	}
	g.trust(certs.Pair{Cert: file})
}

// The handshake of a client with a revoked certificate fails, whether or not calls need a token; others get through.
func TestRevokedClientCertificate(t *testing.T) {
	for _, required := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g := newGuild(t, required)
			thief, owner := certify(g.t, g.ca, "billing"), certify(g.t, g.ca, "billing")
			g.revokeCertificate(thief)
			reached := func(c *tls.Certificate) error {
				config := g.config(c)
				config.NextProtos = []string{"h2"}
				conn, err := shake(t, g.l, config)
				if err == nil {
					_, err = conn.Read(make([]byte, 1)) // TLS 1.3 tells the client after its handshake
				}
				return err
			}
			if err := reached(owner); !errors.Is(err, io.EOF) { // it was idle
				t.Errorf("required %v: a certificate of the same name: %v", required, err)
			}
			if err := reached(thief); err == nil || !strings.Contains(err.Error(), "certificate") {
				t.Errorf("required %v: the revoked certificate: %v", required, err)
			}
		})
	}
}

// watching makes the authenticator check long calls and receive copies of the tokens until the test ends.
func watching(t *testing.T, g *certGateway) {
	t.Helper()
	ended := make(chan struct{})
	go func() { defer close(ended); g.auth.Watch(t.Context()) }()
	t.Cleanup(func() { <-ended })
}

// A server's certificate does not identify a client, even if it is from the clients' authority. A node's, which serves both ends of
// a connection, is like a client's: it identifies no one until there is a token for one of its names.
func TestCertificatesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name, want string
			issue      func(ca certs.Pair, now time.Time, days int, name string, hosts []string) (certs.Pair, error)
			token      string // the name that a token is for; "": there is none
		}{
			{"a server's with a token", "no connection", certs.NewServer, "subject:CN=n1"},
			{"a node's", "no token exists for the certificate (uri:pawl://node/n1 ", certs.NewNode, ""},
			{"a node's with a token", "n1 by uri:pawl://node/n1", certs.NewNode, "uri:pawl://node/n1"},
		} {
			g := newGuild(t, false)
			pair, err := c.issue(g.ca, time.Now(), 30, "n1", []string{"n1"})
			if err != nil {
				t.Fatal(err)
			}
			cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
			if err != nil {
				t.Fatal(err)
			}
			if c.token != "" {
				g.admit("n1", c.token, auth.Everything)
			}
			g.is(c.name, g.me(&cert, ""), c.want)
		}
	})
}

// The names of certificates are valid in tokens for them.
func TestCertificateNamesAreValid(t *testing.T) {
	g := &certGateway{t: t}
	for _, name := range certs.Names(certify(g.t, newAuthority(g.t), "billing", "Mail.Example.com").Leaf) {
		if err := auth.CheckCertificate("certificate", name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", "billing", "CN=billing", "uri:", "dns:Mail.example.com", "ip:10.0.0.1", "subject:a\nb",
		"uri:" + strings.Repeat("a", 512)} {
		if err := auth.CheckCertificate("certificate", name); err == nil || !strings.Contains(err.Error(), "certificate: ") {
			t.Errorf("CheckCertificate(%.20q) = %v", name, err)
		}
	}
}

// Handlers know that a request came over TLS, also behind the listener that routes connections.
func TestHandlersSeeTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.pages = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "TLS: %v", r.TLS != nil) })
		_, l, v := serveTLS(t, f)
		resp, err := web(t, l, v.client("n1")).Get("https://localhost/")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, _ := io.ReadAll(resp.Body); string(body) != "TLS: true" {
			t.Errorf("page = %s, want TLS: true", body)
		}
	})
}

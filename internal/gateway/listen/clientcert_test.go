package listen

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/certs"
)

// The verification of a certificate is cached for a minute, unless it expires before or the authorities change.
func TestCertificateCache(t *testing.T) {
	ca, now := newAuthority(t), time.Now()
	long, err := certs.NewClient(ca, now, 1, "long", nil)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(long.Cert, long.Key)
	if err != nil {
		t.Fatal(err)
	}
	good, err := certs.ParseTrust(ca.Cert)
	if err != nil {
		t.Fatal(err)
	}
	none, pool := &certs.Trust{Roots: x509.NewCertPool()}, new(*good)
	of := func(c *tls.Certificate) *auth.Certificate {
		return certificateOf([]*x509.Certificate{c.Leaf}, func() *certs.Trust { return pool })
	}
	is := func(what string, c *auth.Certificate, after time.Duration, want bool) {
		t.Helper()
		if err := c.Good(now.Add(after)); (err == nil) != want {
			t.Errorf("%s: Good = %v", what, err)
		}
	}
	c := of(&cert)
	is("at first", c, 0, true)
	*pool = *none // its identity is unchanged, so it is not consulted
	is("a minute later", c, verifiedFor, true)
	is("more than a minute later", c, verifiedFor+1, false)
	*pool = *good
	is("the refusal stays as long", c, 2*verifiedFor, false)
	pool = good
	is("by other authorities", c, 2*verifiedFor, true)
	is("when it has ended", c, 25*time.Hour, false)
	short := of(certify(t, ca, "short"))
	is("one that ends soon", short, 0, true)
	is("when that has ended", short, 3*time.Second, false)
	if certificateOf(nil, nil) != nil {
		t.Error("certificateOf returned a certificate for a client without one")
	}
	w := httptest.NewRecorder()
	if withTLS(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("GET", "/", nil)); w.Header().Get("Strict-Transport-Security") !=
		"" {
		t.Errorf("a response outside TLS has Strict-Transport-Security: %v", w.Header())
	}
}

func newAuthority(t *testing.T) certs.Pair {
	t.Helper()
	ca, err := certs.NewAuthority(time.Now().AddDate(0, 0, -10), 1000)
	if err != nil {
		t.Fatal(err)
	}
	return ca
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

package gateway

import (
	"context"
	"crypto/x509"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/certs"
)

// ClientCertificates says which certificates clients may show instead of tokens.
type ClientCertificates struct {
	// Authorities vouch for them, those of the moment: the same pool as long as they are the same. Nil: clients show none.
	Authorities func() *x509.CertPool
	// Required ends the handshake of clients that show none.
	Required bool
}

// verifiedFor is how long the verification of a certificate is good, unless the authorities change.
const verifiedFor = time.Minute

// shownCertificate is what a client showed at its handshake. The connection may outlive it, and the trust in its authority.
type shownCertificate struct {
	chain       []*x509.Certificate
	authorities func() *x509.CertPool
	found       atomic.Pointer[verdict]
}

type verdict struct {
	authorities *x509.CertPool
	until       time.Time
	err         error
}

// certificateOf is that of a connection; nil if its client showed none.
func certificateOf(chain []*x509.Certificate, authorities func() *x509.CertPool) *auth.Certificate {
	if len(chain) == 0 || authorities == nil {
		return nil
	}
	s := &shownCertificate{chain: chain, authorities: authorities}
	return &auth.Certificate{Names: certs.Names(chain[0]), Good: s.good}
}

func (s *shownCertificate) good(now time.Time) error {
	authorities := s.authorities()
	v := s.found.Load()
	if v == nil || v.authorities != authorities || now.After(v.until) {
		v = &verdict{authorities, now.Add(verifiedFor), certs.VerifyClient(s.chain, authorities, now)}
		if end := s.chain[0].NotAfter; v.err == nil && end.Before(v.until) {
			v.until = end
		}
		s.found.Store(v)
	}
	return v.err
}

type guestKey struct{}

// withGuest lets a request of REST know its connection.
func withGuest(ctx context.Context, conn net.Conn) context.Context {
	if c, ok := conn.(*guest); ok {
		return context.WithValue(ctx, guestKey{}, c)
	}
	return ctx
}

// strictTransport has browsers come by TLS alone for a year. Names below the host may have servers of their own, so it says nothing of them.
const strictTransport = "max-age=31536000"

// withTLS tells handlers that their connection is encrypted, which net/http sees only of connections that it has made so itself.
func withTLS(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := guestOf(r.Context()); c != nil && c.state != nil {
			with := *r
			with.TLS = c.state
			r = &with
			w.Header()["Strict-Transport-Security"] = []string{strictTransport}
		}
		next.ServeHTTP(w, r)
	})
}

// certificateOfREST is what the client of a request has shown at its handshake.
func certificateOfREST(ctx context.Context) *auth.Certificate {
	if c := guestOf(ctx); c != nil {
		return c.shown
	}
	return nil
}

// handshaken is what gRPC is told of connections, whose handshake is over when it gets them.
type handshaken struct {
	credentials.TransportCredentials
}

func newHandshaken() credentials.TransportCredentials { return handshaken{insecure.NewCredentials()} }

// shownInfo is what is known of a connection.
type shownInfo struct {
	shown     *auth.Certificate // by its client; nil: none
	strangers *atomic.Int32     // calls under way that want no token
}

// AuthType implements credentials.AuthInfo.
func (shownInfo) AuthType() string { return "pawl" }

// ServerHandshake implements credentials.TransportCredentials.
func (handshaken) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if c, ok := conn.(*guest); ok {
		return conn, shownInfo{c.shown, new(atomic.Int32)}, nil
	}
	return conn, shownInfo{nil, new(atomic.Int32)}, nil
}

// certificateOfGRPC is what the client of a call has shown at its handshake.
func certificateOfGRPC(ctx context.Context) *auth.Certificate { return infoOfGRPC(ctx).shown }

func infoOfGRPC(ctx context.Context) shownInfo {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(shownInfo); ok {
			return info
		}
	}
	return shownInfo{}
}

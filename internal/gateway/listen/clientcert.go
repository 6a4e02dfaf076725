package listen

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

// ClientCertificates says which certificates clients may present instead of tokens.
type ClientCertificates struct {
	// Authorities returns whom to trust at present: the same as long as nothing changes. Nil: clients present no certificates.
	Authorities func() *certs.Trust
	// Until returns when the first of the authorities expires; nil: unknown.
	Until func() time.Time
	// Required ends the handshake of clients that present none.
	Required bool
}

// verifiedFor is how long the verification of a certificate is cached, unless the authorities change.
const verifiedFor = time.Minute

// clientCertificate is the certificate that a client presented at its handshake. The connection may outlive it, and the trust in its
// authority.
type clientCertificate struct {
	chain       []*x509.Certificate
	authorities func() *certs.Trust
	found       atomic.Pointer[verdict]
}

type verdict struct {
	authorities *certs.Trust
	until       time.Time
	err         error
}

// certificateOf returns the certificate of a connection; nil if its client presented none.
func certificateOf(chain []*x509.Certificate, authorities func() *certs.Trust) *auth.Certificate {
	if len(chain) == 0 || authorities == nil {
		return nil
	}
	s := &clientCertificate{chain: chain, authorities: authorities}
	return &auth.Certificate{Names: certs.Names(chain[0]), Good: s.good}
}

func (s *clientCertificate) good(now time.Time) error {
	authorities := s.authorities()
	v := s.found.Load()
	if v == nil || v.authorities != authorities || now.After(v.until) {
		v = &verdict{authorities, now.Add(verifiedFor), authorities.Verify(s.chain, x509.ExtKeyUsageClientAuth, now)}
		if end := s.chain[0].NotAfter; v.err == nil && end.Before(v.until) {
			v.until = end
		}
		s.found.Store(v)
	}
	return v.err
}

type connKey struct{}

// withConn is an http.Server.ConnContext: it makes the connection available to REST's requests.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	if c, ok := conn.(*sniffedConn); ok {
		return context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}

// strictTransport makes browsers use TLS only, for a year. It does not include subdomains, which may have other servers.
const strictTransport = "max-age=31536000"

// withTLS sets Request.TLS, which net/http does only for TLS connections that it created itself.
func withTLS(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := connOf(r.Context()); c != nil && c.state != nil {
			with := *r
			with.TLS = c.state
			r = &with
			w.Header()["Strict-Transport-Security"] = []string{strictTransport}
		}
		next.ServeHTTP(w, r)
	})
}

// CertificateOfREST returns the certificate that the client of a request presented at its handshake.
func CertificateOfREST(ctx context.Context) *auth.Certificate {
	if c := connOf(ctx); c != nil {
		return c.clientCert
	}
	return nil
}

// handshaken are transport credentials for connections that have completed their handshake before gRPC gets them.
type handshaken struct {
	credentials.TransportCredentials
}

func newHandshaken() credentials.TransportCredentials { return handshaken{insecure.NewCredentials()} }

// ConnInfo is what gRPC knows of a connection.
type ConnInfo struct {
	clientCert  *auth.Certificate // the client's; nil: none
	PublicCalls *atomic.Int32     // calls in progress that need no token
	conn        *rpcConn          // nil: unknown
}

// AuthType implements credentials.AuthInfo.
func (ConnInfo) AuthType() string { return "pawl" }

// Close closes the connection.
func (i ConnInfo) Close() {
	if i.conn != nil {
		_ = i.conn.Close() // its calls end in any case
	}
}

// OnClose runs fn in its own goroutine once the connection is closed, unless forget is called before that.
func (i ConnInfo) OnClose(fn func()) (forget func() bool) {
	if i.conn == nil {
		return func() bool { return false }
	}
	return context.AfterFunc(i.conn.open, fn)
}

// rpcConn is a connection of gRPC.
type rpcConn struct {
	net.Conn
	open   context.Context // ends when the connection is closed
	closed context.CancelFunc
}

// Close implements net.Conn.
func (c *rpcConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// ServerHandshake implements credentials.TransportCredentials.
func (handshaken) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	rpc := &rpcConn{Conn: conn}
	rpc.open, rpc.closed = context.WithCancel(context.Background())
	info := ConnInfo{PublicCalls: new(atomic.Int32), conn: rpc}
	if c, ok := conn.(*sniffedConn); ok {
		info.clientCert = c.clientCert
	}
	return rpc, info, nil
}

// CertificateOfGRPC returns the certificate that the client of a call presented at its handshake.
func CertificateOfGRPC(ctx context.Context) *auth.Certificate { return InfoOf(ctx).clientCert }

// InfoOf returns what gRPC knows of the connection of a call.
func InfoOf(ctx context.Context) ConnInfo {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(ConnInfo); ok {
			return info
		}
	}
	return ConnInfo{}
}

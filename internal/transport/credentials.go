package transport

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// proof is the result of a handshake: the name in the other side's certificate.
type proof struct {
	credentials.TLSInfo
	name string
}

// tlsCredentials performs the TLS handshakes of connections, each with the current keys.
type tlsCredentials struct {
	t    *Transport
	want string // the name that the server must prove; "": any node's
}

// credentials returns the credentials for connections to the node of that name, or for all incoming ones.
func (t *Transport) credentials(name string) credentials.TransportCredentials {
	if t.keyring == nil {
		return insecure.NewCredentials()
	}
	return &tlsCredentials{t: t, want: name}
}

// ClientHandshake implements credentials.TransportCredentials.
func (d *tlsCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	who := newUnprovenConn(raw)
	conn, info, err := credentials.NewTLS(d.t.keyring.now().client(d.want)).ClientHandshake(ctx, authority, who)
	if err != nil {
		d.t.logHandshake("the TLS handshake with a peer failed", d.want, raw, err)
		return nil, nil, err
	}
	who.proven = true
	return d.t.prove(conn, info, x509.ExtKeyUsageServerAuth)
}

// ServerHandshake implements credentials.TransportCredentials.
func (d *tlsCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	who := newUnprovenConn(raw)
	conn, info, err := credentials.NewTLS(d.t.keyring.now().server()).ServerHandshake(who)
	if err != nil {
		d.t.logHandshake("a connection to the peer port was refused", "", raw, err)
		return nil, nil, err
	}
	who.proven = true
	return d.t.prove(conn, info, x509.ExtKeyUsageClientAuth)
}

func (t *Transport) prove(conn net.Conn, info credentials.AuthInfo, usage x509.ExtKeyUsage) (net.Conn, credentials.AuthInfo, error) {
	state, ok := info.(credentials.TLSInfo)
	if !ok || len(state.State.PeerCertificates) == 0 {
		_ = conn.Close()
		return nil, nil, errors.New("handshake without certificates")
	}
	name, err := certifiedName(state.State.PeerCertificates[0])
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	c := &provenConn{Conn: conn, chain: state.State.PeerCertificates, usage: usage, name: name, at: time.Now(), t: t}
	t.proven.Store(c, nil)
	return c, proof{TLSInfo: state, name: name}, nil
}

// provenConn is a connection whose peer has proven its name by a certificate.
type provenConn struct {
	net.Conn
	t     *Transport
	chain []*x509.Certificate
	usage x509.ExtKeyUsage
	name  string
	at    time.Time // of the handshake
	keys  *keys     // by which the certificate was last verified
}

// Close implements net.Conn.
func (c *provenConn) Close() error {
	c.t.proven.Delete(c)
	return c.Conn.Close()
}

// watchTrust closes the connections of peers whose certificates, or their authorities, are no longer trusted, until Close. That a
// certificate has expired meanwhile does not end a connection: all would end at once.
func (t *Transport) watchTrust() {
	tick := time.NewTicker(trustEvery)
	defer tick.Stop()
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-tick.C:
		}
		now := t.keyring.now()
		t.proven.Range(func(key, _ any) bool {
			c := key.(*provenConn)
			if c.keys == now {
				return true
			}
			c.keys = now
			if err := now.trust.Verify(c.chain, c.usage, c.at); err != nil {
				if t.logLimit.allow("untrusted " + c.name) {
					t.cfg.Logger.Warn("a connection with a peer is closed: its certificate is no longer trusted", "peer", c.name,
						"address", c.RemoteAddr().String(), "reason", err)
				}
				_ = c.Close()
			}
			return true
		})
	}
}

// trustEvery is how often open connections are compared with what is trusted now.
const trustEvery = 10 * time.Second

// logHandshake logs why a handshake failed. A port scan, which sends nothing, isn't worth a line.
func (t *Transport) logHandshake(what, name string, conn net.Conn, err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) || errors.Is(err, net.ErrClosed) {
		return
	}
	host := conn.RemoteAddr().String()
	if h, _, splitErr := net.SplitHostPort(host); splitErr == nil {
		host = h
	}
	if t.logLimit.allow("handshake " + name + " " + host) {
		t.cfg.Logger.Warn(what, "peer", name, "address", conn.RemoteAddr().String(), "reason", err)
	}
}

// Info implements credentials.TransportCredentials.
func (d *tlsCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials.
func (d *tlsCredentials) Clone() credentials.TransportCredentials {
	return &tlsCredentials{t: d.t, want: d.want}
}

// OverrideServerName implements credentials.TransportCredentials. Host names are not checked.
func (d *tlsCredentials) OverrideServerName(string) error { return nil }

package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// What follows the handshake on a connection, as ALPN names it.
const (
	protoHTTP1 = "http/1.1"
	protoHTTP2 = "h2"
)

// handshaker is how clients are answered whose connections are encrypted, each with the certificate of the moment. A client that
// can HTTP/1.1 gets that, since it may want REST; who asks for HTTP/2 alone wants gRPC. Who asks for neither is refused, and
// who asks for nothing is sorted by its first bytes, as without TLS.
//
// Nothing is resumed: a session would outlive the certificates that it began with, and workers stay for long anyway.
type handshaker struct {
	certificate func() *tls.Certificate
	clients     ClientCertificates
	greetings   atomic.Pointer[handshakes]
}

// handshakes are what clients are answered while the same authorities vouch for them.
type handshakes struct {
	authorities *x509.CertPool
	web, rpc    *tls.Config
}

// newTLS is the configuration of connections until their first message has come.
func newTLS(certificate func() *tls.Certificate, clients ClientCertificates) *tls.Config {
	g := &handshaker{certificate: certificate, clients: clients}
	outer := g.speaking(protoHTTP2, nil)
	outer.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		now := g.now()
		if slices.Contains(hello.SupportedProtos, protoHTTP1) {
			return now.web, nil
		}
		return now.rpc, nil
	}
	return outer
}

func (g *handshaker) now() *handshakes {
	var authorities *x509.CertPool
	if g.clients.Authorities != nil {
		authorities = g.clients.Authorities()
	}
	now := g.greetings.Load()
	if now == nil || now.authorities != authorities {
		now = &handshakes{authorities, g.speaking(protoHTTP1, authorities), g.speaking(protoHTTP2, authorities)}
		g.greetings.Store(now)
	}
	return now
}

// suites are those of TLS 1.2: forward secret, and with authenticated encryption. Go's own default also has CBC with SHA-1. Those of TLS
// 1.3 are all so.
var suites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

func (g *handshaker) speaking(proto string, authorities *x509.CertPool) *tls.Config {
	c := &tls.Config{
		MinVersion:             tls.VersionTLS12,
		CipherSuites:           suites,
		NextProtos:             []string{proto},
		SessionTicketsDisabled: true,
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return g.certificate(), nil },
		ClientCAs:              authorities,
	}
	switch {
	case authorities == nil:
	case g.clients.Required:
		c.ClientAuth = tls.RequireAndVerifyClientCert
	default:
		c.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return c
}

const (
	// lastWord is the pause between an answer to a handshake that failed and the end of the connection, for the client to read it: what is
	// closed while its bytes lie unread takes the answer along.
	lastWord = time.Second
	// maxUnread bounds what is read meanwhile.
	maxUnread = 64 << 10
)

// plainRefusal answers a request in plaintext. To a client of gRPC it is no HTTP/2, which the SDK explains (pawl.plain).
var plainRefusal = func() []byte {
	body := fmt.Sprintf(`{"type":"urn:pawl:error:%[1]s","title":%[2]q,"status":400,"detail":"this port wants TLS: use https://, or the client's option for TLS","code":"%[1]s"}`,
		task.CodeInvalidArgument, contract.FaceOf(task.CodeInvalidArgument).Title)
	return fmt.Appendf(nil, "HTTP/1.1 400 Bad Request\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
}()

// failed says why a connection got no further than its handshake, and tells a client that speaks plaintext.
func (d *door) failed(c *guest, err error) {
	d.log.Debug("TLS handshake failed", "address", c.raw.RemoteAddr().String(), "reason", err)
	if errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) {
		return // nobody listens
	}
	_ = c.raw.SetDeadline(time.Now().Add(lastWord))
	var plain tls.RecordHeaderError
	if errors.As(err, &plain) && plain.Conn != nil && startsHTTP(plain.RecordHeader) {
		_, _ = c.raw.Write(plainRefusal)
	}
	if tcp, ok := c.raw.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
	_, _ = io.CopyN(io.Discard, c.raw, maxUnread)
}

// startsHTTP reports whether a connection begins like a request of HTTP in plaintext: with a method, in capitals.
func startsHTTP(head [5]byte) bool {
	for _, b := range head[:3] {
		if b < 'A' || b > 'Z' {
			return false
		}
	}
	return true
}

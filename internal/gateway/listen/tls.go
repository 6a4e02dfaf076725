package listen

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl/internal/certs"
	"github.com/pawlq/pawl/internal/task"
)

// The protocols after the handshake, by their ALPN names.
const (
	protoHTTP1 = "http/1.1"
	protoHTTP2 = "h2"
)

// handshaker configures the TLS connections of clients, each with the current certificate. A client that supports HTTP/1.1 gets it,
// since it may want REST; one that offers HTTP/2 alone gets gRPC. A client that offers only others is refused, and one that offers
// none is routed by its first bytes, as without TLS.
//
// Sessions are not resumed: they would outlive the certificates they began with, and workers keep their connections anyway.
type handshaker struct {
	certificate func() *tls.Certificate
	clients     ClientCertificates
	current     atomic.Pointer[tlsConfigs]
}

// tlsConfigs are the configurations while the trusted authorities are the same.
type tlsConfigs struct {
	authorities *certs.Trust
	web, rpc    *tls.Config
}

// newTLS returns the configuration of connections until the ClientHello has arrived.
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

func (g *handshaker) now() *tlsConfigs {
	var authorities *certs.Trust
	if g.clients.Authorities != nil {
		authorities = g.clients.Authorities()
	}
	now := g.current.Load()
	if now == nil || now.authorities != authorities {
		now = &tlsConfigs{authorities, g.speaking(protoHTTP1, authorities), g.speaking(protoHTTP2, authorities)}
		g.current.Store(now)
	}
	return now
}

// suites are the allowed cipher suites of TLS 1.2: forward secret, and with authenticated encryption. Go's own default also has CBC
// with SHA-1. Those of TLS 1.3 all qualify.
var suites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

func (g *handshaker) speaking(proto string, authorities *certs.Trust) *tls.Config {
	c := &tls.Config{
		MinVersion:             tls.VersionTLS12,
		CipherSuites:           suites,
		NextProtos:             []string{proto},
		SessionTicketsDisabled: true,
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return g.certificate(), nil },
	}
	if authorities == nil {
		return c
	}
	c.ClientCAs, c.ClientAuth = authorities.Roots, tls.VerifyClientCertIfGiven
	if g.clients.Required {
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	c.VerifyConnection = func(s tls.ConnectionState) error { return authorities.CheckRevoked(s.VerifiedChains) }
	return c
}

const (
	// lingerTime is the pause between the answer to a failed handshake and closing the connection, for the client to read it: closing
	// with unread bytes would discard the answer.
	lingerTime = time.Second
	// maxUnread bounds what is read meanwhile.
	maxUnread = 64 << 10
)

// plainRefusal answers a plaintext request. A gRPC client sees it as invalid HTTP/2, which the SDK explains (pawl.plain).
var plainRefusal = func() []byte {
	body, _ := json.Marshal(problemOf(&task.Error{Code: task.CodeInvalidArgument, Message: "this port requires TLS: use https://, or the " +
		"client's option for TLS"}))
	return fmt.Appendf(nil, "HTTP/1.1 400 Bad Request\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\nConnection: "+
		"close\r\n\r\n%s", len(body), body)
}()

// failed logs why a connection's handshake failed, and answers a client that speaks plaintext.
func (d *acceptor) failed(c *sniffedConn, err error) {
	d.log.Debug("TLS handshake failed", "address", c.raw.RemoteAddr().String(), "reason", err)
	if errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) {
		return // nobody is listening
	}
	_ = c.raw.SetDeadline(time.Now().Add(lingerTime))
	var plain tls.RecordHeaderError
	if errors.As(err, &plain) && plain.Conn != nil && startsHTTP(plain.RecordHeader) {
		_, _ = c.raw.Write(plainRefusal)
	}
	if tcp, ok := c.raw.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
	_, _ = io.CopyN(io.Discard, c.raw, maxUnread)
}

// startsHTTP reports whether a connection begins like a plaintext HTTP request: with a method, in capitals.
func startsHTTP(head [5]byte) bool {
	for _, b := range head[:3] {
		if b < 'A' || b > 'Z' {
			return false
		}
	}
	return true
}

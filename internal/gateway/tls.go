package gateway

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// What follows the handshake on a connection, as ALPN names it.
const (
	protoHTTP1 = "http/1.1"
	protoHTTP2 = "h2"
)

// newTLS is how clients are answered whose connections are encrypted, each with the certificate of the moment. A client that
// can HTTP/1.1 gets that, since it may want REST; who asks for HTTP/2 alone wants gRPC. Who asks for neither is refused, and
// who asks for nothing is sorted by its first bytes, as without TLS.
//
// Nothing is resumed: a session would outlive the certificate that it began with, and workers stay for long anyway.
func newTLS(certificate func() *tls.Certificate) *tls.Config {
	speaking := func(proto string) *tls.Config {
		return &tls.Config{
			MinVersion:             tls.VersionTLS12,
			NextProtos:             []string{proto},
			SessionTicketsDisabled: true,
			GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate(), nil },
		}
	}
	web, rpc := speaking(protoHTTP1), speaking(protoHTTP2)
	outer := rpc.Clone() // of a connection until its first message has come
	outer.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if slices.Contains(hello.SupportedProtos, protoHTTP1) {
			return web, nil
		}
		return rpc, nil
	}
	return outer
}

const (
	// plainAnswer is the pause between an answer in plaintext and the end of the connection, for the client to read it: what is
	// closed while its bytes lie unread takes the answer along.
	plainAnswer = time.Second
	// maxPlain bounds what is read meanwhile.
	maxPlain = 64 << 10
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
	var plain tls.RecordHeaderError
	if !errors.As(err, &plain) || plain.Conn == nil || !startsHTTP(plain.RecordHeader) {
		return
	}
	_ = c.raw.SetDeadline(time.Now().Add(plainAnswer))
	if _, err := c.raw.Write(plainRefusal); err != nil {
		return
	}
	if tcp, ok := c.raw.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
	_, _ = io.CopyN(io.Discard, c.raw, maxPlain)
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

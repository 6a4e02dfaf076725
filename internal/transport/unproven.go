package transport

import (
	"fmt"
	"net"
)

// maxUnproven bounds what is read from a connection until the other side has proved its identity. Certificates and
// their chain take a few KiB; the library accepts up to 256 KiB of them, in a buffer that doubles. With 32 KiB here, no
// allocation exceeds the 64 KiB that a stranger may cost us.
const maxUnproven = 64 << 10 / 2

var errUnproven = fmt.Errorf("it sent more than %d bytes before it proved its identity", maxUnproven)

// unprovenConn is a connection whose other side is not known yet. Only one goroutine reads it, before and after the handshake.
type unprovenConn struct {
	net.Conn
	left   int // bytes that may be read
	proven bool
}

func newUnprovenConn(c net.Conn) *unprovenConn { return &unprovenConn{Conn: c, left: maxUnproven} }

// Read implements net.Conn.
func (s *unprovenConn) Read(b []byte) (int, error) {
	switch {
	case s.proven:
		return s.Conn.Read(b)
	case s.left == 0:
		return 0, errUnproven
	case len(b) > s.left:
		b = b[:s.left]
	}
	n, err := s.Conn.Read(b)
	s.left -= n
	return n, err
}

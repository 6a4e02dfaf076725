package transport

import (
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// maxStranger bounds what is read of a connection until the other side has said who it is. Certificates and their chain have a few KiB; the
// library takes 256 KiB of them, gathered in a buffer that doubles. With half of what a stranger may take, no piece of memory is larger than that.
const maxStranger = 64 << 10 / 2

var errTalksTooMuch = fmt.Errorf("it sent more than %d bytes without saying who it is", maxStranger)

// stranger is a connection whose other side is not known yet. One goroutine reads it, before and after.
type stranger struct {
	net.Conn
	left  int // bytes that may be read
	known bool
}

func strangerAt(c net.Conn) *stranger { return &stranger{Conn: c, left: maxStranger} }

// Read implements net.Conn.
func (s *stranger) Read(b []byte) (int, error) {
	switch {
	case s.known:
		return s.Conn.Read(b)
	case s.left == 0:
		return 0, errTalksTooMuch
	case len(b) > s.left:
		b = b[:s.left]
	}
	n, err := s.Conn.Read(b)
	s.left -= n
	return n, err
}

// openDoor is the door without TLS: everyone is believed who speaks the protocol. What scans the port does not, and is turned away before the
// buffers of a connection are made for it.
type openDoor struct {
	credentials.TransportCredentials
}

func newOpenDoor() credentials.TransportCredentials { return openDoor{insecure.NewCredentials()} }

var errNoPeer = errors.New("it does not begin as a node does")

// ServerHandshake implements credentials.TransportCredentials. Its time is bounded by the deadline that the server gives a new connection.
func (p openDoor) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	greeting := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(raw, greeting); err != nil {
		return nil, nil, err
	}
	if string(greeting) != http2.ClientPreface {
		return nil, nil, errNoPeer
	}
	return p.TransportCredentials.ServerHandshake(&greeted{Conn: raw, greeting: greeting})
}

// Clone implements credentials.TransportCredentials.
func (p openDoor) Clone() credentials.TransportCredentials {
	return openDoor{p.TransportCredentials.Clone()}
}

// greeted is a connection whose first bytes were read, and are read again.
type greeted struct {
	net.Conn
	greeting []byte
}

// Read implements net.Conn.
func (g *greeted) Read(b []byte) (int, error) {
	if len(g.greeting) == 0 {
		return g.Conn.Read(b)
	}
	n := copy(b, g.greeting)
	g.greeting = g.greeting[n:]
	return n, nil
}

package transport

import (
	"fmt"
	"net"
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

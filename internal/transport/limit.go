package transport

import (
	"net"
	"sync"
)

// limitedListener rejects connections while there are too many.
type limitedListener struct {
	net.Listener
	places chan struct{} // each connection takes one
}

func limitListener(l net.Listener, most int) *limitedListener {
	return &limitedListener{Listener: l, places: make(chan struct{}, most)}
}

// Accept implements net.Listener.
func (g *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case g.places <- struct{}{}:
			return &limitedConn{Conn: conn, release: sync.OnceFunc(func() { <-g.places })}, nil
		default:
			_ = conn.Close()
		}
	}
}

// limitedConn is a connection that holds a place.
type limitedConn struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

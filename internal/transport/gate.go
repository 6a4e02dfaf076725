package transport

import (
	"net"
	"sync"
)

// gate turns connections away while there are too many.
type gate struct {
	net.Listener
	places chan struct{} // one taken by each connection
}

func newGate(l net.Listener, most int) *gate {
	return &gate{Listener: l, places: make(chan struct{}, most)}
}

// Accept implements net.Listener.
func (g *gate) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case g.places <- struct{}{}:
			return &guest{Conn: conn, leave: sync.OnceFunc(func() { <-g.places })}, nil
		default:
			_ = conn.Close()
		}
	}
}

// guest is a connection that has a place.
type guest struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *guest) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

package transport

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	grpcpeer "google.golang.org/grpc/peer"
)

// limitedListener rejects connections while there are too many.
type limitedListener struct {
	net.Listener
	places chan struct{} // each connection takes one
	all    *acceptedConns
}

func limitListener(l net.Listener, most int, all *acceptedConns) *limitedListener {
	return &limitedListener{Listener: l, places: make(chan struct{}, most), all: all}
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
			c := &acceptedConn{Conn: conn}
			c.release = sync.OnceFunc(func() { <-g.places; g.all.remove(c) })
			g.all.add(c)
			return c, nil
		default:
			_ = conn.Close()
		}
	}
}

// acceptedConn is a connection that holds a place.
type acceptedConn struct {
	net.Conn
	release func()
	from    atomic.Pointer[Peer] // who sent the last request that only members may send, as far as that is proven; nil: there was none
}

// note records who sent a request.
func (c *acceptedConn) note(from Peer) {
	if last := c.from.Load(); last == nil || *last != from {
		c.from.Store(new(from))
	}
}

// Close implements net.Conn.
func (c *acceptedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// RemoteAddr implements net.Conn. By the address gRPC passes the connection on to the handlers of its requests.
func (c *acceptedConn) RemoteAddr() net.Addr { return connAddr{c.Conn.RemoteAddr(), c} }

type connAddr struct {
	net.Addr
	conn *acceptedConn
}

// acceptedFrom returns the connection of a request; nil: it is unknown.
func acceptedFrom(ctx context.Context) *acceptedConn {
	if p, ok := grpcpeer.FromContext(ctx); ok {
		if at, ok := p.Addr.(connAddr); ok {
			return at.conn
		}
	}
	return nil
}

// acceptedConns are the open connections that were accepted. Its zero value is ready to use.
type acceptedConns struct {
	mu  sync.Mutex
	all map[*acceptedConn]struct{}
}

func (s *acceptedConns) add(c *acceptedConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*acceptedConn]struct{}{}
	}
	s.all[c] = struct{}{}
}

func (s *acceptedConns) remove(c *acceptedConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, c)
}

// closeIf closes the connections of peers for which out returns true.
func (s *acceptedConns) closeIf(out func(Peer) bool) {
	var leave []*acceptedConn
	s.mu.Lock()
	for c := range s.all {
		if from := c.from.Load(); from != nil && out(*from) {
			leave = append(leave, c)
		}
	}
	s.mu.Unlock()
	for _, c := range leave {
		_ = c.Close()
	}
}

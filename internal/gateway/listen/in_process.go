package listen

import (
	"context"
	"net"

	"google.golang.org/grpc/peer"
)

// InProcessAddr is the address of a caller within the process: the host on whose behalf it calls.
type InProcessAddr string

// Network implements net.Addr.
func (InProcessAddr) Network() string { return "inside" }

// String implements net.Addr.
func (a InProcessAddr) String() string { return string(a) }

// inProcessConn is the server's end of a connection within the process.
type inProcessConn struct {
	net.Conn
	from InProcessAddr
}

func (c inProcessConn) RemoteAddr() net.Addr { return c.from }

// DialInProcess connects a client within this process, such as the web UI, which speaks gRPC over memory, in plaintext. from is the
// host on whose behalf it calls: its actions are recorded as coming from there, over the interface "ui". It waits until the server serves.
func (s *Server) DialInProcess(ctx context.Context, from string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case s.inProcess.conns <- inProcessConn{far, InProcessAddr(from)}:
		return near, nil
	case <-s.acceptor.closed:
		_ = near.Close()
		return nil, net.ErrClosed
	case <-ctx.Done():
		_ = near.Close()
		return nil, ctx.Err()
	}
}

// IsInProcess reports whether a call came over DialInProcess.
func IsInProcess(p *peer.Peer) bool {
	_, ok := p.Addr.(InProcessAddr)
	return ok
}

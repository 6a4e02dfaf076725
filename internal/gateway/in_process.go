package gateway

import (
	"context"
	"net"

	"google.golang.org/grpc/peer"
)

// inProcessAddr is the address of a caller within the process: the host on whose behalf it calls.
type inProcessAddr string

// Network implements net.Addr.
func (inProcessAddr) Network() string { return "inside" }

// String implements net.Addr.
func (a inProcessAddr) String() string { return string(a) }

// inProcessConn is the server's end of a connection within the process.
type inProcessConn struct {
	net.Conn
	from inProcessAddr
}

func (c inProcessConn) RemoteAddr() net.Addr { return c.from }

// DialInProcess connects a client within this process, such as the web UI, which speaks gRPC over memory, in plaintext. from is the
// host on whose behalf it calls: its actions are recorded as coming from there, by face "ui". It waits until the gateway serves.
func (g *Gateway) DialInProcess(ctx context.Context, from string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case g.inProcess.conns <- inProcessConn{far, inProcessAddr(from)}:
		return near, nil
	case <-g.acceptor.closed:
		_ = near.Close()
		return nil, net.ErrClosed
	case <-ctx.Done():
		_ = near.Close()
		return nil, ctx.Err()
	}
}

// isInProcess reports whether a call came over DialInProcess.
func isInProcess(p *peer.Peer) bool {
	_, ok := p.Addr.(inProcessAddr)
	return ok
}
